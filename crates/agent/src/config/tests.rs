//! The layers against real files: who wins, who may not, and what is said.

use std::path::Path;

use super::*;

struct Fixture {
    dir: tempfile::TempDir,
    sources: Sources,
}

fn fixture(user: &str, project: &str) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (home, work) = (dir.path().join("home"), dir.path().join("work/inner"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&work).unwrap();
    std::fs::create_dir_all(dir.path().join("work/.git")).unwrap();
    std::fs::create_dir_all(dir.path().join("work/.flint")).unwrap();
    write(&home.join("config.toml"), user);
    write(&dir.path().join("work/.flint/config.toml"), project);
    let env = HashMap::from([("FLINT_HOME".to_owned(), home.display().to_string())]);
    let sources = Sources { user_dir: Some(home), cwd: work, env, ..Sources::default() };
    let fixture = Fixture { dir, sources };
    fixture.trust(true);
    fixture
}

impl Fixture {
    /// The user says whether the project, as it is now, is trusted.
    fn trust(&self, trusted: bool) {
        // What is wrong with a file is said when it is loaded for the test.
        if let Ok(loaded) = Config::load(&self.sources) {
            let state = state_dir(&self.sources.env);
            Trust::set(state.as_deref(), &loaded.trust.root, &loaded.trust.files, trusted).unwrap();
        }
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn load(fixture: &Fixture) -> Loaded {
    Config::load(&fixture.sources).unwrap()
}

#[test]
fn without_any_file_the_defaults_hold() {
    let sources = Sources { cwd: PathBuf::from("/nonexistent/here"), ..Sources::default() };
    let loaded = Config::load(&sources).unwrap();
    assert!(loaded.warnings.is_empty());
    let config = loaded.config;
    assert_eq!((config.model_provider.as_str(), config.is_local()), ("flint", true));
    assert_eq!(
        (config.sandbox_mode, config.approval_policy),
        (sandbox::Mode::WorkspaceWrite, approval::Policy::OnRequest)
    );
    assert_eq!((config.candidates.count, config.project_doc_max_bytes), (5, 32 << 10));
    assert!(!config.sandbox_workspace_write.network_access && config.style.is_none());
}

#[test]
fn later_layers_win_and_every_value_says_where_it_came_from() {
    let user = "model = \"a\"\ntemperature = 0\ncheck = \"u\"\n[profiles.fast]\nmodel = \"c\"\nstyle = \"agent\"\n";
    let mut fixture = fixture(user, "model = \"b\"\ncheck = \"p\"\n");
    let origins = |loaded: &Loaded| ["model", "check", "temperature"].map(|key| loaded.origin(key).to_string());
    let (home, work) =
        (fixture.dir.path().join("home/config.toml"), fixture.dir.path().join("work/.flint/config.toml"));
    let (home, work) = (home.display().to_string(), work.display().to_string());
    let loaded = load(&fixture);
    assert_eq!(loaded.config.model.as_deref(), Some("b"));
    assert_eq!(origins(&loaded), [work.clone(), work.clone(), home.clone()]);
    assert_eq!((loaded.files.len(), loaded.profiles.as_slice()), (2, &["fast".to_owned()][..]));

    fixture.sources.profile = Some("fast".to_owned());
    let loaded = load(&fixture);
    assert_eq!((loaded.config.model.as_deref(), loaded.config.style), (Some("c"), Some(Style::Agent)));
    assert_eq!(origins(&loaded), ["profile fast".to_owned(), work.clone(), home.clone()]);

    fixture.sources.env.extend([
        ("FLINT_MODEL".to_owned(), "d".to_owned()),
        ("FLINT_TEMPERATURE".to_owned(), "0.5".to_owned()),
        ("FLINT_CHECK".to_owned(), String::new()),
    ]);
    let loaded = load(&fixture);
    assert_eq!((loaded.config.model.as_deref(), loaded.config.temperature), (Some("d"), Some(0.5)));
    assert_eq!(origins(&loaded), ["$FLINT_MODEL".to_owned(), work, "$FLINT_TEMPERATURE".to_owned()]);

    fixture.sources.overrides = vec!["model=e-1.5b".to_owned(), "try.count=3".to_owned(), "model = 'f=g'".to_owned()];
    let loaded = load(&fixture);
    assert_eq!((loaded.config.model.as_deref(), loaded.config.candidates.count), (Some("f=g"), 3));
    assert_eq!(loaded.origin("model"), &Origin::CommandLine);
}

#[test]
fn a_project_may_tighten_and_never_loosen() {
    let project = "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"\nmodel_provider = \"evil\"\n\
        [sandbox_workspace_write]\nnetwork_access = true\nwritable_roots = [\"/\"]\nexclude_slash_tmp = true\n\
        [model_providers.flint]\nbase_url = \"http://example.com/v1\"\n[profiles.fast]\nmodel = \"x\"\n";
    let place_of = |user: &str, project: &str| load(&fixture(user, project));
    let loaded = place_of("", project);
    let config = &loaded.config;
    assert_eq!(
        (config.sandbox_mode, config.approval_policy),
        (sandbox::Mode::WorkspaceWrite, approval::Policy::OnRequest)
    );
    assert!(config.is_local() && config.model_provider == "flint" && loaded.profiles.is_empty());
    let write = &config.sandbox_workspace_write;
    assert!(!write.network_access && write.writable_roots.is_empty() && write.exclude_slash_tmp);
    for key in [
        "sandbox_mode",
        "approval_policy",
        "model_provider",
        "network_access",
        "writable_roots",
        "base_url",
        "profiles",
    ] {
        assert!(loaded.warnings.iter().any(|line| line.contains(key)), "{key}: {:?}", loaded.warnings);
    }
    let strict = place_of("sandbox_mode = \"danger-full-access\"\n", "sandbox_mode = \"read-only\"\n");
    assert_eq!((strict.config.sandbox_mode, strict.warnings.len()), (sandbox::Mode::ReadOnly, 0));
    let off = place_of(
        "[sandbox_workspace_write]\nexclude_slash_tmp = true\n",
        "[sandbox_workspace_write]\nexclude_slash_tmp = false\n",
    );
    assert!(off.config.sandbox_workspace_write.exclude_slash_tmp && off.warnings.len() == 1);
}

#[test]
fn a_project_sets_nothing_until_it_is_trusted_as_it_is() {
    let project = "model = \"b\"\ncheck = \"p\"\nstyle = \"agent\"\ntry.check = \"q\"\nsandbox_mode = \"read-only\"\n";
    let fixture = fixture("check = \"u\"\n", project);
    let says = |part: &str| {
        let loaded = load(&fixture);
        let (set, line) = (loaded.config.model.is_some(), loaded.warnings.iter().find(|line| line.contains(part)));
        assert_eq!(loaded.config.sandbox_mode, sandbox::Mode::ReadOnly, "stricter is always allowed");
        assert_eq!(loaded.config.check.as_deref(), Some(if set { "p" } else { "u" }));
        assert_eq!(loaded.config.candidates.check.is_some(), set);
        assert_eq!(set, loaded.config.style.is_some());
        (set, line.is_some(), loaded.trust.standing)
    };
    assert_eq!(says("no effect"), (true, false, Standing::Trusted));
    // A file that came later, in a folder further down.
    let inner = fixture.dir.path().join("work/inner/.flint");
    std::fs::create_dir(&inner).unwrap();
    write(&inner.join("config.toml"), "max_output_tokens = 7\n");
    assert_eq!(says("max_output_tokens"), (true, true, Standing::Changed));
    assert_eq!(load(&fixture).config.max_output_tokens, None);
    fixture.trust(true);
    assert_eq!(load(&fixture).config.max_output_tokens, Some(7));
    // A file that changed.
    write(&fixture.dir.path().join("work/.flint/config.toml"), &format!("{project}temperature = 1\n"));
    assert_eq!(says("changed since you trusted it, so check, model, style"), (false, true, Standing::Changed));
    fixture.trust(false);
    assert_eq!(says("this folder is not trusted"), (false, true, Standing::Declined));
    // A repository inside of a trusted one is a repository of its own.
    fixture.trust(true);
    assert_eq!(says("no effect"), (true, false, Standing::Trusted));
    std::fs::write(fixture.dir.path().join("work/inner/.git"), "gitdir: ../.git\n").unwrap();
    let loaded = load(&fixture);
    assert_eq!((loaded.config.max_output_tokens, loaded.trust.standing), (None, Standing::Untrusted));
}

#[test]
fn what_is_unknown_is_named_with_the_nearest_key() {
    let loaded =
        load(&fixture("modle = \"x\"\nmodel_reasoning_effort = \"high\"\n[profiles.a]\nstile = \"pair\"\n", ""));
    let said = loaded.warnings.join("\n");
    for part in ["modle", "did you mean model?", "key of Codex", "profile a", "did you mean style?"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let error = |user: &str, overrides: &str| {
        let mut fixture = fixture(user, "");
        fixture.sources.overrides = overrides.lines().map(str::to_owned).collect();
        Config::load(&fixture.sources).unwrap_err().to_string()
    };
    let cases = [
        (error("sandbox_mod = \"read-only\"", ""), "did you mean sandbox_mode?"),
        (error("", "modle=x"), "did you mean model?"),
        (error("", "model"), "there is no ="),
        (error("sandbox_mode = \"open\"", ""), "one of read-only, workspace-write, danger-full-access"),
        (error("temperature = 3", ""), "from 0 to 2"),
        (error("max_output_tokens = -1", ""), "a whole number from 0"),
        (error("model = ", ""), "line 1"),
        (error("profile = \"nope\"", ""), "there is no profile \"nope\""),
        (error("[profiles.a]\nstyle = \"x\"", ""), "profile a"),
        (error("model_provider = \"nope\"", ""), "there are flint, openai"),
    ];
    for (said, part) in cases {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn a_provider_becomes_what_its_client_needs() {
    let user = "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://h/v1\"\nenv_key = \"MY_KEY\"\n\
        supports_websockets = false\nwire_api = \"chat\"\nhttp_headers = { a = \"1\" }\nenv_http_headers = { b = \"B\", c = \"C\" }\n";
    let config = load(&fixture(user, "")).config;
    let missing = config.client_options(None, &HashMap::new()).unwrap_err().to_string();
    assert!(missing.contains("$MY_KEY, which is not set"), "{missing}");
    let env = HashMap::from([("MY_KEY".to_owned(), "k".to_owned()), ("B".to_owned(), "2".to_owned())]);
    let options = config.client_options(None, &env).unwrap();
    assert_eq!((options.base_url.as_str(), options.api_key.as_deref()), ("http://h/v1", Some("k")));
    assert_eq!((options.transport, options.wire_api), (client::Transport::Sse, WireApi::Chat));
    assert_eq!(options.headers, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    let local = load(&fixture("", "")).config;
    assert_eq!(local.client_options(Some("unix:/s"), &env).unwrap().base_url, "unix:/s");
    assert!(local.client_options(None, &env).is_err());
}
