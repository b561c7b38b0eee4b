//! From a name or a path to a file: what is accepted, what is refused and with which words.

use hub::{Error, Presence};

use crate::fixture::{Fixture, entry, files_below};

#[test]
fn a_truncated_file_is_refused_with_its_reason() {
    let fixture = Fixture::new();
    let path = fixture.pull().unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let text = fixture.store().resolve("tiny").unwrap_err().to_string();
    let expected = format!("it has 1000 bytes and should have {}", fixture.model.len());
    assert!(text.contains(&expected) && text.contains("flint models pull tiny"), "{text}");
    fixture.pull().unwrap();
    assert!(std::fs::read(&path).unwrap() == fixture.model);
}

#[test]
fn a_changed_byte_is_refused_with_its_reason() {
    let fixture = Fixture::new();
    let path = fixture.pull().unwrap();
    let mut bytes = fixture.model.clone();
    bytes[5000] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    let error = fixture.store().resolve("tiny").unwrap_err();
    assert!(matches!(&error, Error::Damaged { reason, .. } if reason.starts_with("its sha256 is")), "{error}");
}

#[test]
fn a_file_with_another_time_is_read_again_and_accepted() {
    let fixture = Fixture::new();
    let path = fixture.pull().unwrap();
    let record = path.with_extension("gguf.verified");
    let before = std::fs::read(&record).unwrap();
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(fixture.store().resolve("tiny").unwrap().path, path);
    assert_ne!(std::fs::read(&record).unwrap(), before, "the record is renewed");
    std::fs::remove_file(&record).unwrap();
    assert_eq!(fixture.store().resolve("tiny").unwrap().path, path, "the catalogue knows the digest too");
}

#[test]
fn a_path_works_wherever_a_name_does() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let refused = |name: &str, bytes: &[u8], reason: &str| {
        let path = fixture.path(name);
        std::fs::write(&path, bytes).unwrap();
        let text = store.resolve(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(text.contains(reason), "{text}");
    };
    refused("empty.gguf", b"", "it has 0 bytes");
    refused("other.gguf", b"PK\x03\x04....", "where a GGUF file has \"GGUF\"");
    let text = store.resolve("missing.gguf").unwrap_err().to_string();
    assert_eq!(text, "missing.gguf is not a model file: there is no such file");
    let text = store.resolve(fixture.path("wheels").to_str().unwrap()).unwrap_err().to_string();
    assert!(text.ends_with("it is not a regular file"), "{text}");

    let mine = fixture.path("mine.gguf");
    std::fs::write(&mine, &fixture.model).unwrap();
    let resolved = store.resolve(mine.to_str().unwrap()).unwrap();
    assert_eq!(resolved.path, mine);
    assert!(resolved.entry.is_none());
}

#[test]
fn remove_takes_the_model_and_what_an_unfinished_pull_left() {
    let fixture = Fixture::new();
    let store = fixture.store();
    assert_eq!(store.remove(entry(&store)).unwrap(), 0);
    fixture.pull().unwrap();
    assert_eq!(store.installed().len(), 1);
    assert_eq!(store.remove(entry(&store)).unwrap(), fixture.model.len() as u64);
    assert_eq!(files_below(store.root()), Vec::<std::path::PathBuf>::new());

    fixture.refuse(3);
    fixture.pull().unwrap_err();
    assert!(store.remove(entry(&store)).unwrap() > 0);
    assert_eq!(store.presence(entry(&store)), Presence::Absent);
    assert_eq!(files_below(store.root()), Vec::<std::path::PathBuf>::new());
}
