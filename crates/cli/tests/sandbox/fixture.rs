//! What is attacked: a workspace, something outside of it, a process, and sockets that note who comes.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Fixture {
    _dir: tempfile::TempDir,
    pub work: PathBuf,
    outside: PathBuf,
    victim: Child,
    tcp: TcpListener,
    udp: UdpSocket,
    stream: UnixListener,
    datagram: UnixDatagram,
    hidden: UnixListener,
    hidden_name: String,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (work, outside) = (root.join("work"), root.join("outside"));
        for folder in [".git/hooks", ".flint", "home/conf", "empty"] {
            fs::create_dir_all(work.join(folder)).unwrap();
        }
        fs::create_dir_all(&outside).unwrap();
        let files = [".git/config", ".flint/config.toml", "home/conf/config.toml", "mine"].map(|name| work.join(name));
        for file in files.into_iter().chain([outside.join("file")]) {
            fs::write(file, "before").unwrap();
        }
        set_user_id(&outside.join("set-user-id"));
        let hidden_name = format!("flint-attack-{}", root.display());
        let address = SocketAddr::from_abstract_name(&hidden_name).unwrap();
        // The victim waits for its standard input to close, which happens when this fixture is dropped.
        let victim =
            Command::new("cat").env("VICTIM", "1").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let fixture = Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            stream: UnixListener::bind(outside.join("stream")).unwrap(),
            datagram: UnixDatagram::bind(outside.join("datagram")).unwrap(),
            hidden: UnixListener::bind_addr(&address).unwrap(),
            hidden_name,
            _dir: dir,
            work,
            outside,
            victim,
        };
        fixture.udp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        fixture.listen();
        fixture
    }

    /// Writes down when a datagram comes, for the sender to see.
    fn listen(&self) {
        let (udp, note) = (self.udp.try_clone().unwrap(), self.outside.join("heard"));
        std::thread::spawn(move || {
            if matches!(udp.recv(&mut [0; 8]), Ok(1..)) {
                let _ = fs::write(note, "yes");
            }
        });
    }

    pub fn variables(&self, attack: &str) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        [
            ("ATTACK_NAME", attack.to_owned()),
            ("ATTACK_WORK", text(&self.work)),
            ("ATTACK_OUTSIDE", text(&self.outside)),
            ("ATTACK_VICTIM", self.victim.id().to_string()),
            ("ATTACK_TCP", self.tcp.local_addr().unwrap().to_string()),
            ("ATTACK_UDP", self.udp.local_addr().unwrap().to_string()),
            ("ATTACK_ABSTRACT", self.hidden_name.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Everything that must not change: names, contents, modes and times outside, and what is protected inside.
    pub fn fingerprint(&self) -> Vec<(PathBuf, u32, i64, Vec<u8>)> {
        let mut all = Vec::new();
        for folder in [self.outside.clone(), self.work.join(".git"), self.work.join(".flint"), self.work.join("home")] {
            collect(&folder, &mut all);
        }
        all.sort();
        all
    }

    /// Whether somebody came to one of the sockets.
    pub fn was_reached(&self) -> bool {
        self.tcp.set_nonblocking(true).unwrap();
        self.stream.set_nonblocking(true).unwrap();
        self.hidden.set_nonblocking(true).unwrap();
        self.datagram.set_nonblocking(true).unwrap();
        self.tcp.accept().is_ok()
            || self.stream.accept().is_ok()
            || self.hidden.accept().is_ok()
            || self.datagram.recv(&mut [0; 8]).is_ok()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // An attack that worked leaves it behind.
        let _ = rustix::mount::unmount(self.work.join("empty"), rustix::mount::UnmountFlags::empty());
        drop(self.victim.stdin.take());
        let _ = self.victim.wait();
    }
}

fn collect(path: &Path, into: &mut Vec<(PathBuf, u32, i64, Vec<u8>)>) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    let content = if meta.is_file() { fs::read(path).unwrap_or_default() } else { Vec::new() };
    into.push((path.to_owned(), meta.mode(), meta.mtime(), content));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        collect(&entry.path(), into);
    }
}

/// `id`, belonging to another user and running as that one. Only root can make it; nobody else's attack needs it.
fn set_user_id(path: &Path) {
    let found = ["/usr/bin/id", "/bin/id"].into_iter().find(|id| Path::new(id).exists());
    fs::copy(found.unwrap(), path).unwrap();
    if std::os::unix::fs::chown(path, Some(1), None).is_ok() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o4755)).unwrap();
    }
}
