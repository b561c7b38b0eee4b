//! Searches and references against a hub that a test wrote down.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use hub::{Found, HuggingFace, Reference, RepoFile};

/// Answers each path with what is written down for it, and notes the paths.
struct Scripted {
    hub: HuggingFace,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn start(answers: &'static [(&'static str, &'static str)]) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut first = String::new();
                let mut line = String::new();
                reader.read_line(&mut first).unwrap();
                while reader.read_line(&mut line).unwrap() > 2 {
                    line.clear();
                }
                let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = answers.iter().find(|(known, _)| path.starts_with(known));
                let (status, body) = answer.map_or(("404 Not Found", "{}"), |(_, body)| ("200 OK", *body));
                noted.lock().unwrap().push(path);
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                let _ = stream.write_all((head + body).as_bytes());
            }
        });
        Scripted { hub: HuggingFace { endpoint, ..HuggingFace::default() }, asked }
    }
}

#[test]
fn a_word_finds_repositories() {
    let scripted = Scripted::start(&[(
        "/api/models?",
        r#"[{"id": "a/One-GGUF", "downloads": 7, "likes": 2, "tags": ["gguf", "license:mit"], "private": false},
            {"id": "b/Two-GGUF"}]"#,
    )]);
    let found = scripted.hub.search("one & two").unwrap();
    let one = Found { repo: "a/One-GGUF".into(), downloads: 7, likes: 2, licence: Some("mit".into()) };
    let two = Found { repo: "b/Two-GGUF".into(), downloads: 0, likes: 0, licence: None };
    assert_eq!(found, [one, two]);
    let asked = scripted.asked.lock().unwrap();
    assert!(asked[0].contains("search=one%20%26%20two&filter=gguf"), "{asked:?}");
}

#[test]
fn a_repository_lists_its_files() {
    let scripted = Scripted::start(&[(
        "/api/models/a/One-GGUF",
        r#"{"siblings": [{"rfilename": "one-Q4_K_M.gguf", "size": 12}, {"rfilename": "README.md"}]}"#,
    )]);
    let files = scripted.hub.files("a/One-GGUF").unwrap();
    let file = |file: &str, bytes| RepoFile { file: file.to_owned(), bytes };
    assert_eq!(files, [file("one-Q4_K_M.gguf", Some(12)), file("README.md", None)]);
    let missing = scripted.hub.files("a/nosuch").unwrap_err().to_string();
    assert!(missing.contains("a/nosuch") && missing.contains("404"), "{missing}");
}

#[test]
fn what_is_no_json_is_an_error() {
    let scripted = Scripted::start(&[("/api/models", "<html>sign in</html>")]);
    assert!(scripted.hub.search("x").unwrap_err().to_string().contains("not understood"));
}

#[test]
fn a_reference_is_fetched_checked_and_remembered() {
    use crate::fixture::{Fixture, sha256};
    use crate::huggingface::serve;

    let fixture = Fixture::new();
    let (endpoint, _) = serve(fixture.model.clone(), sha256(&fixture.model));
    let mut options = fixture.options();
    options.huggingface = HuggingFace { endpoint: Some(endpoint), ..HuggingFace::default() };
    let name = "hf:owner/tiny-GGUF/tiny.gguf";
    let entry = Reference::parse(name).unwrap().unwrap().entry().unwrap();
    let store = fixture.store();
    let missing = store.resolve(name).unwrap_err().to_string();
    assert!(missing.contains(&format!("flint models pull {name}")), "{missing}");
    let path = store.pull(&entry, &options, &mut hub::Silent).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), fixture.model);
    assert_eq!(store.resolve(name).unwrap().path, path);
    assert_eq!(store.find(name).unwrap().name, entry.name);
    // Another file under the same name is refused.
    let mut other = fixture.model.clone();
    other[5] ^= 1;
    let (endpoint, _) = serve(other.clone(), sha256(&other));
    options.huggingface.endpoint = Some(endpoint);
    store.remove(&entry).unwrap();
    let refused = store.pull(&entry, &options, &mut hub::Silent).unwrap_err().to_string();
    assert!(refused.contains("it was refused"), "{refused}");
}
