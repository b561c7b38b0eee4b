//! Pulls from a server that speaks as Hugging Face does: digest first, then ranges.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use hub::{HuggingFace, PullOptions, Silent, Token};

use crate::fixture::{Fixture, Recorded, entry, sha256};

const SOURCE: &str = r#"[[model.sources]]
    kind = "huggingface"
    repo = "owner/tiny-GGUF"
    file = "tiny.gguf"
    "#;

/// Serves one file and notes what it was asked.
struct Server {
    endpoint: String,
    ranges: Arc<Mutex<Vec<String>>>,
    /// The credentials of each request, empty where there were none.
    authorizations: Arc<Mutex<Vec<String>>>,
}

/// How a server answers.
#[derive(Clone)]
struct Play {
    file: Vec<u8>,
    etag: String,
    /// Closes the connection after so many bytes of a body, as a network that breaks.
    bytes_max: usize,
    /// Redirects to this address, as the hub does for large files.
    redirect: Option<String>,
    /// Answers everything with this line.
    refusal: Option<&'static str>,
}

impl Server {
    fn start(file: Vec<u8>, etag: String, bytes_max: usize) -> Server {
        Server::playing(Play { file, etag, bytes_max, redirect: None, refusal: None })
    }

    fn playing(play: Play) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (ranges, authorizations) = (Arc::default(), Arc::default());
        let noted = (Arc::clone(&ranges), Arc::clone(&authorizations));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that goes away in the middle is its own business.
                let _ = answer(stream.unwrap(), &play, &noted.0, &noted.1);
            }
        });
        Server { endpoint, ranges, authorizations }
    }

    fn options(&self, fixture: &Fixture) -> PullOptions {
        let huggingface = HuggingFace { endpoint: Some(self.endpoint.clone()), ..HuggingFace::default() };
        PullOptions { huggingface, ..fixture.options() }
    }
}

/// Serves a file under every path; gives the address and what was asked.
pub fn serve(file: Vec<u8>, sha256: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let server = Server::start(file, sha256, usize::MAX);
    (server.endpoint, server.ranges)
}

fn answer(
    stream: TcpStream,
    play: &Play,
    ranges: &Mutex<Vec<String>>,
    authorizations: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut range, mut authorization) = (String::new(), String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim();
        match line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value)) {
            Some((name, value)) if name == "range" => range = value.trim_start_matches("bytes=").to_owned(),
            Some((name, value)) if name == "authorization" => authorization = value.to_owned(),
            _ => {}
        }
        if line.is_empty() {
            break;
        }
    }
    ranges.lock().unwrap().push(range.clone());
    authorizations.lock().unwrap().push(authorization);
    let mut stream = stream;
    if let Some(line) = play.refusal {
        return write!(stream, "HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let Play { file, etag, .. } = play;
    if let Some(to) = &play.redirect {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {}\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n",
            file.len()
        );
    }
    let (start, end) = range.split_once('-').unwrap();
    let start: usize = start.parse().unwrap();
    let end = end.parse().map_or(file.len(), |end: usize| end + 1);
    if start >= file.len() {
        return write!(stream, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let body = &file[start..end];
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{}\r\n\
         ETag: \"{etag}\"\r\nX-Repo-Commit: 0123abcd\r\nConnection: close\r\n\r\n",
        body.len(),
        end - 1,
        file.len()
    )?;
    stream.write_all(&body[..body.len().min(play.bytes_max)])
}

#[test]
fn fetches_checks_and_installs() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &sha256(&fixture.model));
    let server = Server::start(fixture.model.clone(), sha256(&fixture.model), usize::MAX);
    let store = fixture.store();
    let path = store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    store.resolve("tiny").unwrap();
}

/// A catalogue that does not say what the file must be.
fn without_digest() -> Fixture {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, "unknown");
    let text = std::fs::read_to_string(fixture.path("catalogue.toml")).unwrap();
    let without: Vec<&str> =
        text.lines().filter(|line| !line.contains("sha256 =") && !line.contains("bytes =")).collect();
    std::fs::write(fixture.path("catalogue.toml"), without.join("\n")).unwrap();
    fixture
}

#[test]
fn takes_the_hubs_digest_where_the_catalogue_has_none() {
    let fixture = without_digest();
    let store = fixture.store();
    let digest = sha256(&fixture.model);

    let lying = Server::start(fixture.model.clone(), "0".repeat(64), usize::MAX);
    let text = store.pull(entry(&store), &lying.options(&fixture), &mut Silent).unwrap_err().to_string();
    assert!(text.contains(&format!("the file has sha256 {digest}, expected 0000")), "{text}");
    let silent = Server::start(fixture.model.clone(), "abc".to_owned(), usize::MAX);
    let text = store.pull(entry(&store), &silent.options(&fixture), &mut Silent).unwrap_err().to_string();
    assert!(text.contains("the hub gives no sha256 for tiny.gguf"), "{text}");

    let server = Server::start(fixture.model.clone(), digest.clone(), usize::MAX);
    let path = store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap();
    assert_eq!(store.recorded_sha256(entry(&store)).unwrap(), digest);
    let mut bytes = fixture.model.clone();
    bytes[9] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let text = store.resolve("tiny").unwrap_err().to_string();
    assert!(text.contains(&format!("and should be {digest}")), "{text}");
}

/// Trust on first use: what a source published once is what it must publish later, even after the file was removed.
#[test]
fn a_file_that_was_replaced_at_its_source_is_refused_until_the_user_forgets_the_old_one() {
    let fixture = without_digest();
    let store = fixture.store();
    let mut other = fixture.model.clone();
    other[9] ^= 1;
    let (first, second) = (sha256(&fixture.model), sha256(&other));
    let server = Server::start(fixture.model.clone(), first.clone(), usize::MAX);
    let replaced = Server::start(other.clone(), second.clone(), usize::MAX);
    store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap();
    store.remove(entry(&store)).unwrap();
    let text = store.pull(entry(&store), &replaced.options(&fixture), &mut Silent).unwrap_err().to_string();
    assert!(text.contains(&first) && text.contains(&second) && text.contains("rm --forget tiny"), "{text}");
    assert_eq!(replaced.ranges.lock().unwrap().len(), 1, "nothing of it is fetched");
    store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap();
    store.remove(entry(&store)).unwrap();
    assert!(store.forget(entry(&store)).unwrap() && !store.forget(entry(&store)).unwrap());
    let path = store.pull(entry(&store), &replaced.options(&fixture), &mut Silent).unwrap();
    assert!(std::fs::read(path).unwrap() == other);
    std::fs::write(fixture.path("store/pins.json"), "[").unwrap();
    store.remove(entry(&store)).unwrap();
    let text = store.pull(entry(&store), &replaced.options(&fixture), &mut Silent).unwrap_err().to_string();
    assert!(text.contains("pins.json") && text.contains("move it away"), "{text}");
}

#[test]
fn another_file_is_refused_before_it_is_fetched() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &"1".repeat(64));
    let server = Server::start(fixture.model.clone(), sha256(&fixture.model), usize::MAX);
    let store = fixture.store();
    let text = store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap_err().to_string();
    assert!(text.contains("expected 1111"), "{text}");
    assert_eq!(*server.ranges.lock().unwrap(), ["0-0"]);
}

#[test]
fn goes_on_after_a_broken_connection_and_after_a_kill_before_the_rename() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &sha256(&fixture.model));
    let store = fixture.store();
    let breaking = Server::start(fixture.model.clone(), sha256(&fixture.model), 300_000);
    let path = store.pull(entry(&store), &breaking.options(&fixture), &mut Silent).unwrap();
    assert!(std::fs::read(&path).unwrap() == fixture.model);
    let asked = breaking.ranges.lock().unwrap().clone();
    assert!(asked.contains(&"300000-".to_owned()), "{asked:?}");

    store.remove(entry(&store)).unwrap();
    let staging = fixture.path("store/partial/tiny/source-1");
    std::fs::create_dir_all(&staging).unwrap();
    std::fs::write(staging.join(sha256(&fixture.model)).with_extension("part"), &fixture.model).unwrap();
    let server = Server::start(fixture.model.clone(), sha256(&fixture.model), usize::MAX);
    store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap();
    assert_eq!(*server.ranges.lock().unwrap(), ["0-0"], "every byte was there already");
}

#[test]
fn sources_are_tried_in_order() {
    let fixture = Fixture::new();
    fixture.write_catalogue(&(fixture.packages_source() + SOURCE), &sha256(&fixture.model));
    fixture.refuse(1);
    let server = Server::start(fixture.model.clone(), sha256(&fixture.model), usize::MAX);
    let store = fixture.store();
    let mut events = Recorded::default();
    let path = store.pull(entry(&store), &server.options(&fixture), &mut events).unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    assert!(events.0.iter().any(|event| event.starts_with("SourceFailed")), "{:?}", events.0);

    store.remove(entry(&store)).unwrap();
    let huggingface = HuggingFace { endpoint: Some("http://127.0.0.1:1".to_owned()), ..HuggingFace::default() };
    let nobody = PullOptions { huggingface, ..fixture.options() };
    let text = store.pull(entry(&store), &nobody, &mut Silent).unwrap_err().to_string();
    assert!(text.contains("1. Python packages") && text.contains("2. Hugging Face owner/tiny-GGUF"), "{text}");
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn the_token_goes_to_the_endpoint_and_not_where_it_redirects() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &sha256(&fixture.model));
    let store = fixture.store();
    let files = Server::start(fixture.model.clone(), "its own".to_owned(), usize::MAX);
    let hub = Server::playing(Play {
        file: fixture.model.clone(),
        etag: sha256(&fixture.model),
        bytes_max: usize::MAX,
        redirect: Some(format!("{}/signed?x=1", files.endpoint)),
        refusal: None,
    });
    let mut options = hub.options(&fixture);
    options.huggingface.token = Token::new("hf_secret\n");
    let path = store.pull(entry(&store), &options, &mut Silent).unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    assert_eq!(*hub.authorizations.lock().unwrap(), ["Bearer hf_secret", "Bearer hf_secret"]);
    assert_eq!(*files.authorizations.lock().unwrap(), [""], "one request, without the token");
    assert!(!format!("{options:?}").contains("secret"));
    assert!(Token::new(" ").is_none() && Token::new("a\nb").is_none());
}

#[test]
fn a_redirect_without_the_endpoints_digest_is_not_trusted() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &sha256(&fixture.model));
    let store = fixture.store();
    let files = Server::start(fixture.model.clone(), sha256(&fixture.model), usize::MAX);
    let hub = Server::playing(Play {
        file: fixture.model.clone(),
        etag: "none".to_owned(),
        bytes_max: usize::MAX,
        redirect: Some(files.endpoint.clone()),
        refusal: None,
    });
    let text = store.pull(entry(&store), &hub.options(&fixture), &mut Silent).unwrap_err().to_string();
    assert!(text.contains("the hub gives no sha256"), "{text}");
}

#[test]
fn refusals_say_what_to_do() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &sha256(&fixture.model));
    let store = fixture.store();
    for (line, expected) in
        [("401 Unauthorized", "set HF_TOKEN"), ("404 Not Found", "no file tiny.gguf in owner/tiny-GGUF")]
    {
        let play = Play { file: Vec::new(), etag: String::new(), bytes_max: 0, redirect: None, refusal: Some(line) };
        let server = Server::playing(play);
        let text = store.pull(entry(&store), &server.options(&fixture), &mut Silent).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

/// The listener takes connections and never says a word, so TLS cannot begin.
#[test]
fn a_hub_that_cannot_be_reached_costs_three_seconds_and_the_next_source_is_tried() {
    let fixture = Fixture::new();
    fixture.write_catalogue(&(SOURCE.to_owned() + &fixture.packages_source()), &sha256(&fixture.model));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Some(format!("https://{}", listener.local_addr().unwrap()));
    let options = PullOptions { huggingface: HuggingFace { endpoint, ..HuggingFace::default() }, ..fixture.options() };
    let store = fixture.store();
    let mut events = Recorded::default();
    let path = store.pull(entry(&store), &options, &mut events).unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    let failed = events.0.iter().find(|event| event.starts_with("SourceFailed")).unwrap();
    assert!(failed.contains("no connection within 3 seconds"), "{failed}");
}

/// Puts the model into a cache as `huggingface_hub` does, as a blob with links to it.
fn cached(fixture: &Fixture, bytes: &[u8], digest: &str) -> PullOptions {
    let folder = fixture.path("cache/models--owner--tiny-GGUF");
    for name in ["blobs", "refs", "snapshots/0123abcd"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("blobs").join(digest), bytes).unwrap();
    std::fs::write(folder.join("refs/main"), "0123abcd").unwrap();
    let link = folder.join("snapshots/0123abcd/tiny.gguf");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(format!("../../blobs/{digest}"), link).unwrap();
    let huggingface = HuggingFace {
        endpoint: Some("http://127.0.0.1:1".to_owned()),
        cache: Some(fixture.path("cache")),
        ..HuggingFace::default()
    };
    PullOptions { huggingface, ..fixture.options() }
}

#[test]
fn a_file_in_hugging_faces_cache_is_used_without_the_network_and_without_a_copy() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, &sha256(&fixture.model));
    let store = fixture.store();
    let options = PullOptions { offline: true, ..cached(&fixture, &fixture.model, &sha256(&fixture.model)) };
    let path = store.pull(entry(&store), &options, &mut Silent).unwrap();
    assert!(std::fs::read(&path).unwrap() == fixture.model);
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(&path).unwrap()), 2);

    let unknown = Fixture::new();
    unknown.write_catalogue(SOURCE, "unknown");
    let text = std::fs::read_to_string(unknown.path("catalogue.toml")).unwrap();
    let without: Vec<&str> =
        text.lines().filter(|line| !line.contains("sha256 =") && !line.contains("bytes =")).collect();
    std::fs::write(unknown.path("catalogue.toml"), without.join("\n")).unwrap();
    let store = unknown.store();
    let options = cached(&unknown, &unknown.model, &sha256(&unknown.model));
    store.pull(entry(&store), &options, &mut Silent).unwrap();
    assert_eq!(store.recorded_sha256(entry(&store)).unwrap(), sha256(&unknown.model));
}

#[test]
fn a_damaged_file_in_the_cache_is_passed_over() {
    let fixture = Fixture::new();
    let sources = SOURCE.to_owned() + &fixture.packages_source();
    fixture.write_catalogue(&sources, &sha256(&fixture.model));
    let store = fixture.store();
    let mut damaged = fixture.model.clone();
    damaged[9] ^= 1;
    let options = cached(&fixture, &damaged, &sha256(&fixture.model));
    let mut events = Recorded::default();
    let path = store.pull(entry(&store), &options, &mut events).unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    assert!(
        events.0.iter().any(|event| event.starts_with("SourceFailed") && event.contains("cache")),
        "{:?}",
        events.0
    );
}
