//! The rules for Landlock: reading is free, writing only below the writable roots and to a few devices.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::Enforcement;
use crate::policy::Rules;

/// Devices every program may write to.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// And where they are its own, terminals and shared memory.
const OWN: [&str; 3] = ["/dev/ptmx", "/dev/pts", "/dev/shm"];

/// Binds this process and all that come from it.
pub(crate) fn restrict(rules: &Rules) -> Result<(), String> {
    let alone = rules.enforcement == Enforcement::Landlock;
    let failed = |error: landlock::RulesetError| format!("Landlock: {error}");
    // Version 3 is the first that covers truncation. Alone it must hold; behind namespaces it is the second wall.
    let level = if alone { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    let write = AccessFs::from_write(ABI::V3);
    let mut ruleset = Ruleset::default().set_compatibility(level).handle_access(write).map_err(failed)?;
    ruleset = ruleset.set_compatibility(CompatLevel::BestEffort).scope(Scope::from_all(ABI::V6)).map_err(failed)?;
    if alone {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(failed)?;
    }
    let mut created = ruleset.create().map_err(failed)?;
    let devices = DEVICES.map(PathBuf::from);
    let shared = OWN.iter().filter(|_| !alone).map(PathBuf::from);
    let roots = if alone { without_protected(rules) } else { rules.writable.clone() };
    let temporary = rules.temporary_seen().map(Path::to_owned);
    for path in devices.into_iter().chain(shared).chain(temporary).chain(roots) {
        // What is not there needs no rule.
        let Ok(fd) = PathFd::new(&path) else { continue };
        let access = if path.is_dir() { write } else { write & AccessFs::from_file(ABI::V3) };
        created = created.add_rule(PathBeneath::new(fd, access)).map_err(failed)?;
    }
    let status = created.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced if alone => Err("Landlock is not enabled in this kernel".to_owned()),
        _ => Ok(()),
    }
}

/// Landlock grants a folder with all below it and can take nothing back, so a folder that holds something protected is
/// granted by its other entries. Nothing new can be made at its top then. A root always holds something protected: names
/// that do not exist yet.
fn without_protected(rules: &Rules) -> Vec<PathBuf> {
    rules.writable.iter().flat_map(|root| split(root, rules)).collect()
}

fn split(folder: &Path, rules: &Rules) -> Vec<PathBuf> {
    if rules.protected.iter().any(|path| folder.starts_with(path)) {
        return Vec::new();
    }
    let is_root = rules.writable.iter().any(|root| root == folder);
    if !is_root && !rules.protected.iter().any(|path| path.starts_with(folder)) {
        return vec![folder.to_owned()];
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A symbolic link is no entry of its own: what it leads to is granted where it is, or not at all.
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    real.flat_map(|entry| split(&entry.path(), rules)).collect()
}
