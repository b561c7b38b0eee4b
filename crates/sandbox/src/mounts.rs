//! The file systems as a cell sees them, and its loopback. Runs in the keeper, which has a mount namespace of its own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};

use crate::keeper::told;
use crate::policy::{Rules, TMP};

/// Bytes of shared memory.
const SHARED_BYTES_MAX: u64 = 1 << 30;
/// Devices of the outside that a cell has too.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Where the empty folder is that is mounted over protected names which do not exist.
const EMPTY: &str = "/dev/.empty";

/// Makes everything read-only but the writable roots, and what is protected in them read-only again.
pub(crate) fn arrange(rules: &Rules) -> Result<(), String> {
    // Nothing mounted here may show outside. What is mounted outside meanwhile may still show here.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|error| told("mount propagation", error))?;
    own_devices()?;
    own_temporary(rules)?;
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
    for path in &rules.masked {
        rustix::mount::mount_bind(EMPTY, path).map_err(|error| told(&format!("masking {}", path.display()), error))?;
    }
    let own = ["/dev/shm", "/dev/pts"].map(Path::new);
    for mount in read_mounts()? {
        let writable = own.contains(&mount.path.as_path()) || rules.allows_writing(&mount.path);
        if !writable && !mount.flags.contains(MountFlags::RDONLY) {
            make_read_only(&mount)?;
        }
    }
    Ok(())
}

/// A /dev with what every program needs and nothing of the user's: terminals and shared memory are new ones. The old
/// terminals are where passwords are typed.
fn own_devices() -> Result<(), String> {
    let dev = Path::new("/dev");
    let failed = |name: &str, error: std::io::Error| told(&format!("/dev/{name}"), error);
    let outside: Vec<(&str, OwnedFd)> =
        DEVICES.iter().filter_map(|name| Some((*name, open(&dev.join(name)).ok()?))).collect();
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_tmpfs(dev, flags, "mode=755,size=64k")?;
    for (name, device) in outside {
        std::fs::File::create(dev.join(name)).map_err(|error| failed(name, error))?;
        rustix::mount::mount_bind(opened(&device), dev.join(name)).map_err(|error| failed(name, error.into()))?;
    }
    for name in ["pts", "shm", ".empty"] {
        std::fs::create_dir(dev.join(name)).map_err(|error| failed(name, error))?;
    }
    let links =
        [("pts/ptmx", "ptmx"), ("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr")];
    for (target, name) in links {
        std::os::unix::fs::symlink(target, dev.join(name)).map_err(|error| failed(name, error))?;
    }
    let options = c"newinstance,ptmxmode=0666,mode=620";
    rustix::mount::mount("devpts", dev.join("pts"), "devpts", flags, options)
        .map_err(|error| failed("pts", error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount_tmpfs(&dev.join("shm"), flags, &format!("mode=1777,size={SHARED_BYTES_MAX}"))?;
    mount_tmpfs(Path::new(EMPTY), flags | MountFlags::NOEXEC | MountFlags::RDONLY, "mode=555,size=4k")
}

/// The session's own folder at /tmp. What others made there is neither seen nor reached, but for what must stay.
fn own_temporary(rules: &Rules) -> Result<(), String> {
    let Some(temporary) = &rules.temporary else { return Ok(()) };
    let failed = |path: &Path, error: std::io::Error| told(&format!("{} below {TMP}", path.display()), error);
    let Some(kept) = &temporary.kept else {
        return rustix::mount::mount_bind_recursive(&temporary.folder, &temporary.folder)
            .map_err(|error| failed(&temporary.folder, error.into()));
    };
    let kept: Vec<(&PathBuf, OwnedFd)> = kept
        .iter()
        .map(|path| Ok((path, open(path)?)))
        .collect::<Result<_, rustix::io::Errno>>()
        .map_err(|e| told(TMP, e))?;
    rustix::mount::mount_bind_recursive(&temporary.folder, TMP)
        .map_err(|error| failed(Path::new(TMP), error.into()))?;
    for (path, place) in kept {
        let is_folder = std::fs::metadata(opened(&place)).is_ok_and(|meta| meta.is_dir());
        let folder = if is_folder { Some(path.as_path()) } else { path.parent() };
        std::fs::create_dir_all(folder.unwrap_or(path)).map_err(|error| failed(path, error))?;
        if !is_folder {
            std::fs::File::options().create(true).append(true).open(path).map_err(|error| failed(path, error))?;
        }
        rustix::mount::mount_bind_recursive(opened(&place), path.as_path())
            .map_err(|error| failed(path, error.into()))?;
    }
    Ok(())
}

fn mount_tmpfs(path: &Path, flags: MountFlags, options: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| told(&path.display().to_string(), error);
    let options = std::ffi::CString::new(options).map_err(|error| failed(&error))?;
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str()).map_err(|error| failed(&error))
}

/// A path as a handle, which still leads there when something else is mounted over it.
fn open(path: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn opened(handle: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// The folders between a writable root and what is protected below it. Each becomes a mount point, because a folder that is
/// one cannot be renamed: otherwise moving `a` away and making a new `a/config.toml` would replace a protected file.
fn pinned(rules: &Rules) -> Vec<PathBuf> {
    let mut pins = Vec::new();
    for path in rules.protected.iter().chain(&rules.masked) {
        let roots = rules.writable.iter().filter(|root| path.starts_with(root));
        let Some(root) = roots.min_by_key(|root| root.components().count()) else { continue };
        let between = path.ancestors().skip(1).take_while(|folder| *folder != root.as_path());
        pins.extend(between.map(Path::to_owned));
    }
    pins.sort();
    pins.dedup();
    // A pin over a writable root would hide the root's own mount, which does the same work; so does a protected folder.
    pins.retain(|pin| !rules.writable.contains(pin) && !rules.protected.iter().any(|path| pin.starts_with(path)));
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
