//! `flint config`: every value with its origin, and nothing secret.

use crate::{failure, flint, stderr, stdout, success};

#[test]
fn every_value_says_where_it_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let (home, work) = (dir.path().join("home"), dir.path().join("work"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(work.join(".flint")).unwrap();
    let user = "model = \"mine\"\nmodle = \"typo\"\n[model_providers.a]\nbase_url = \"http://h/v1\"\n\
                http_headers = { x = \"hunter2\" }\n[profiles.fast]\ntemperature = 0.5\n";
    std::fs::write(home.join("config.toml"), user).unwrap();
    std::fs::write(work.join(".flint/config.toml"), "check = \"make\"\nsandbox_mode = \"danger-full-access\"\n")
        .unwrap();
    let show = |more: &[&str]| {
        let mut command = flint(&["config", "show", "-C", work.to_str().unwrap()]);
        command.args(more).env("FLINT_HOME", &home).env("FLINT_STYLE", "agent");
        command
    };
    let said = stderr(&success(show(&[])));
    assert!(said.contains("not trusted, so check of") && said.contains("`flint trust`"), "{said}");
    let mut trust = flint(&["trust", work.to_str().unwrap()]);
    trust.env("FLINT_HOME", &home);
    assert!(stdout(&success(trust)).contains("check = \"make\""));
    let output = success(show(&["--profile", "fast", "-c", "try.count=9"]));
    let text = stdout(&output);
    let line = |key: &str| text.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap().to_owned();
    for (key, value, origin) in [
        ("model", "\"mine\"", "home/config.toml"),
        ("check", "\"make\"", ".flint/config.toml"),
        ("style", "\"agent\"", "$FLINT_STYLE"),
        ("temperature", "0.5", "profile fast"),
        ("try.count", "9", "command line"),
        ("sandbox_mode", "\"workspace-write\"", "default"),
    ] {
        assert!(line(key).contains(value) && line(key).trim_end().ends_with(origin), "{}", line(key));
    }
    assert!(!text.contains("hunter2"));
    let said = stderr(&output);
    assert!(said.contains("did you mean model?") && said.contains("may not loosen sandbox_mode"), "{said}");

    let json: serde_json::Value = serde_json::from_str(&stdout(&success(show(&["--json"])))).unwrap();
    assert_eq!(json["settings"]["model"]["value"], "mine");
    assert_eq!((json["warnings"].as_array().unwrap().len(), &json["profiles"][0]), (2, &"fast".into()));
    assert!(!json.to_string().contains("hunter2"));

    assert!(failure(show(&["-c", "modle=x"])).contains("did you mean model?"));
    assert!(failure(show(&["-p", "slow"])).contains("there are fast"));
    assert!(stdout(&success(flint(&["config", "keys"]))).contains("sandbox_mode = \"read-only\" | "));
}
