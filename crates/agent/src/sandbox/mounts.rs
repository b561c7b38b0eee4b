//! The file systems as a cell sees them, and its loopback. Runs in the keeper, which has a mount namespace of its own.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};

use super::keeper::told;
use super::policy::Rules;

/// Makes everything read-only but the writable roots, and what is protected in them read-only again.
pub(crate) fn arrange(rules: &Rules) -> Result<(), String> {
    // Nothing mounted here may show outside. What is mounted outside meanwhile may still show here.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|error| told("mount propagation", error))?;
    let bind = |path: &Path| {
        rustix::mount::mount_bind_recursive(path, path)
            .map_err(|error| told(&format!("binding {}", path.display()), error))
    };
    for root in &rules.writable {
        bind(root)?;
    }
    for path in pinned(rules) {
        bind(&path)?;
    }
    for path in &rules.protected {
        bind(path)?;
    }
    // Shared memory of its own: POSIX semaphores need it, and the one outside is a way to talk to other programs.
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", shared, "tmpfs", flags, None).map_err(|error| told("/dev/shm", error))?;
    }
    for mount in read_mounts()? {
        if mount.path != shared && !rules.allows_writing(&mount.path) && !mount.flags.contains(MountFlags::RDONLY) {
            make_read_only(&mount)?;
        }
    }
    Ok(())
}

/// The folders between a writable root and what is protected below it. Each becomes a mount point, because a folder that is
/// one cannot be renamed: otherwise moving `a` away and making a new `a/config.toml` would replace a protected file.
fn pinned(rules: &Rules) -> Vec<PathBuf> {
    let mut pins = Vec::new();
    for path in &rules.protected {
        let roots = rules.writable.iter().filter(|root| path.starts_with(root));
        let Some(root) = roots.min_by_key(|root| root.components().count()) else { continue };
        let between = path.ancestors().skip(1).take_while(|folder| *folder != root.as_path());
        pins.extend(between.map(Path::to_owned));
    }
    pins.sort();
    pins.dedup();
    // A pin over a writable root would hide the root's own mount, which does the same work.
    pins.retain(|pin| !rules.writable.contains(pin));
    pins
}

fn make_read_only(mount: &Mount) -> Result<(), String> {
    use rustix::io::Errno;
    let flags = mount.flags | MountFlags::BIND | MountFlags::RDONLY;
    match rustix::mount::mount_remount(&mount.path, flags, "") {
        // It lies under another mount, or in a folder we may not enter: nobody here can reach it by this path.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::ACCESS) => Ok(()),
        Err(error) => Err(told(&format!("making {} read-only", mount.path.display()), error)),
    }
}

struct Mount {
    path: PathBuf,
    /// What must be kept: taking away a flag that an outer namespace set is refused.
    flags: MountFlags,
}

fn read_mounts() -> Result<Vec<Mount>, String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").map_err(|error| told("the list of mounts", error))?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

/// A line of mountinfo: id, parent, device, root, mount point, options, ...
fn parse_mount(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(4);
    let path = PathBuf::from(unescape(fields.next()?));
    let mut flags = MountFlags::empty();
    for option in fields.next()?.split(',') {
        flags |= match option {
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        };
    }
    Some(Mount { path, flags })
}

/// The kernel writes blanks, tabs, line feeds and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Switches the loopback of a new network namespace on, so that tests which talk to themselves work. This is one message
/// of the rtnetlink protocol: RTM_NEWLINK for interface 1 with the flag IFF_UP, answered by an error code.
pub(crate) fn loopback_up() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| told("the loopback", error);
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None).map_err(failed)?;
    let mut message = Vec::with_capacity(32);
    message.extend(32u32.to_ne_bytes());
    message.extend(16u16.to_ne_bytes());
    message.extend(5u16.to_ne_bytes());
    message.extend([1u32, 0, 0, 1, 1, 1].map(u32::to_ne_bytes).concat());
    rustix::net::send(&socket, &message, SendFlags::empty()).map_err(failed)?;
    let mut reply = [0u8; 64];
    let (length, _) = rustix::net::recv(&socket, &mut reply, RecvFlags::empty()).map_err(failed)?;
    let code =
        reply.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        code => Err(format!("the loopback could not be switched on ({code:?})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let mount =
            parse_mount("29 26 0:26 / /mnt/a\\040b\\134c ro,nosuid,relatime shared:1 - ext4 /dev/x rw").unwrap();
        assert_eq!(mount.path, Path::new("/mnt/a b\\c"));
        assert_eq!(mount.flags, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::RELATIME);
        assert!(parse_mount("29 26").is_none());
    }
}
