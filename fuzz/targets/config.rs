//! Configuration: as a project's file, which never gets more than the defaults give; as the user's; and on the command line.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use agent::config::{Config, Sources};
use libfuzzer_sys::fuzz_target;
use sandbox::Mode;

/// A folder of this process: `.flint/config.toml` in it is the project's file, and `config.toml` in `.flint` the user's.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("flint-fuzz-config-{}", std::process::id()));
    std::fs::create_dir_all(folder.join(".flint")).expect("the temporary folder can be written");
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let file = FOLDER.join(".flint/config.toml");
    std::fs::write(&file, bytes).expect("the temporary folder can be written");
    let none = Sources {
        user_dir: None,
        cwd: FOLDER.clone(),
        profile: None,
        overrides: Vec::new(),
        env: std::collections::HashMap::new(),
    };
    if let Ok(loaded) = Config::load(&none) {
        assert_ne!(loaded.config.sandbox_mode, Mode::DangerFullAccess, "a project has switched the sandbox off");
        assert_eq!(loaded.config.model_provider, "flint", "a project has chosen who gets the code");
    }
    let elsewhere = std::env::temp_dir();
    let _ = Config::load(&Sources { user_dir: Some(FOLDER.join(".flint")), cwd: elsewhere.clone(), ..none.clone() });
    let overrides = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    let _ = Config::load(&Sources { overrides, cwd: elsewhere, ..none });
});
