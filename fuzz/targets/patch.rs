//! Patches as models write them, applied to a file.
#![no_main]

use libfuzzer_sys::fuzz_target;

const FILE: &str = "class A:\n    def b(self):\n        return 1\n\n\ndef c():\n    pass\n";

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(changes) = workspace::edit::patch::parse(text) else { return };
    for change in &changes {
        let _ = workspace::edit::resolve(change, Some(FILE));
    }
});
