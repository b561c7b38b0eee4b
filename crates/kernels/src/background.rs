//! Threads whose work can wait: they take little of a core that others want, and give it up at once.

/// A core is given up after this time at the latest when somebody else wakes up; the system's own is about 3 ms, which a
/// chain of wake-ups pays at each of its links.
const SLICE_NS: u64 = 100_000;

/// The system's structure for `sched_setattr`, in its first version.
#[cfg(target_os = "linux")]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes a thread of this process step back, given its number: it gets this niceness (0 to 19) and a short slice. Linux
/// before 6.12 takes the niceness alone. False where neither is possible.
#[cfg(target_os = "linux")]
pub fn step_back(thread: i32, nice: i32) -> bool {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_BATCH as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the structure is as long as its size says and outlives the call, which only reads it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) == 0 }
}

/// Makes a thread of this process step back; not known for this system.
#[cfg(not(target_os = "linux"))]
pub fn step_back(_: i32, _: i32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_steps_back_is_nicer_than_others() {
        let nice = || {
            // Behind the name in brackets: state, and 16 numbers later the niceness.
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse::<i32>().unwrap()
        };
        let before = nice();
        let after = std::thread::spawn(move || {
            assert!(step_back(0, 15), "0 is the thread that calls");
            nice()
        });
        assert_eq!(after.join().unwrap(), 15);
        assert_eq!(nice(), before, "others are as they were");
    }
}
