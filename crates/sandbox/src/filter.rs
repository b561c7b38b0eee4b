//! The filter for system calls: what no build, test or script needs, and what would lead around the other layers.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// Which sockets there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// None but pairs.
    None,
    /// Those of the network namespace: it decides what they reach.
    Internet,
}

/// Calls that are refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts, namespaces, and opening files around the path.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    // Doors of the kernel. A ring makes calls that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
];

/// Typing into a terminal, by its two names.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541c];

/// Binds this process and all that come from it.
pub(crate) fn apply(sockets: Sockets) -> Result<(), String> {
    let failed = |error: String| format!("seccomp: {error}");
    let programs = [
        // Its flags are in memory where a filter cannot look; "not there" makes libraries use `clone`.
        compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS),
        compile(rules(sockets).map_err(|error| failed(error.to_string()))?, libc::EPERM),
    ];
    for program in programs {
        let program = program.map_err(|error| failed(error.to_string()))?;
        seccompiler::apply_filter(&program).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse.clone(), architecture)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(without_x32(program, errno.unsigned_abs()))
}

/// On x86-64 the same calls have second numbers from 0x40000000 on, which a list of numbers would miss. Three instructions
/// in front (load the number, compare, return) refuse them; nobody uses them.
fn without_x32(program: BpfProgram, errno: u32) -> BpfProgram {
    if !cfg!(target_arch = "x86_64") {
        return program;
    }
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let load_number = instruction(0x20, 0, 0, 0);
    let at_least = instruction(0x35, 0, 1, 0x4000_0000);
    let refuse = instruction(0x06, 0, 0, u32::from(SeccompAction::Errno(errno)));
    [vec![load_number, at_least, refuse], program].concat()
}

fn rules(sockets: Sockets) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let terminal = TERMINAL_INPUT.map(|request| rule(&[(1, Is::Eq, request)]));
    rules.insert(libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?);
    // A new user namespace would give all capabilities back.
    let spaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let spaces = spaces.map(|flag| u64::from(flag.unsigned_abs())).map(|flag| rule(&[(0, Is::MaskedEq(flag), flag)]));
    rules.insert(libc::SYS_clone, spaces.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socket, refused_sockets(sockets)?);
    rules.insert(libc::SYS_socketpair, refused_pairs()?);
    Ok(rules)
}

/// Behind a Unix socket may stand a service that does anything for whoever reaches it, and a filter cannot see which one
/// is meant; other families (vsock, packet, ...) are not bound to the network namespace or need no place in a build.
fn refused_sockets(sockets: Sockets) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if sockets == Sockets::None {
        return Ok(Vec::new());
    }
    let family = |family: i32| u64::from(family.unsigned_abs());
    let [four, six, netlink] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(family);
    Ok(vec![
        rule(&[(0, Is::Ne, four), (0, Is::Ne, six), (0, Is::Ne, netlink)])?,
        // Of netlink only the list of interfaces, which name look-ups read.
        rule(&[(0, Is::Eq, netlink), (2, Is::Ne, 0)])?,
        rule(&[(0, Is::Ne, netlink), (1, Is::MaskedEq(0xf), family(libc::SOCK_RAW))])?,
    ])
}

/// A pair is connected to itself, except that datagrams can be sent to any address (which `SOCK_RAW` means here too).
fn refused_pairs() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let kind = |kind: i32| u64::from(kind.unsigned_abs());
    Ok(vec![
        rule(&[(0, Is::Ne, kind(libc::AF_UNIX))])?,
        rule(&[(1, Is::MaskedEq(0xf), kind(libc::SOCK_DGRAM))])?,
        rule(&[(1, Is::MaskedEq(0xf), kind(libc::SOCK_RAW))])?,
    ])
}

/// All conditions at once: which argument, how, and what. The kernel reads these arguments as 32 bits.
fn rule(conditions: &[(u8, Is, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, is, value)| SeccompCondition::new(*argument, Length::Dword, is.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
