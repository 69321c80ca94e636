//! Who this process is, and whether another process of this machine is still there.

use std::fs;

use super::lock::{Holder, ProcessMark};

/// This process as a holder, with a random instance. Its lock is free for others on this
/// machine as soon as the process is gone.
pub fn this_process(name: &str) -> Holder {
    let pid = std::process::id();
    Holder {
        name: name.to_owned(),
        instance: format!("{:032x}", rand::random::<u128>()),
        host: host(),
        pid,
        process: process_mark(pid),
    }
}

/// A holder that outlives its process: it is the same one wherever `instance` is.
pub fn named(name: &str, instance: &str) -> Holder {
    Holder {
        name: name.to_owned(),
        instance: instance.to_owned(),
        host: host(),
        pid: std::process::id(),
        process: None,
    }
}

/// Whether `holder` certainly runs no more. Only a holder of this machine, this boot and this
/// PID namespace can be told to be gone.
pub(crate) fn is_gone(holder: &Holder) -> bool {
    let Some(theirs) = &holder.process else {
        return false;
    };
    let Some(ours) = process_mark(std::process::id()) else {
        return false;
    };
    let comparable =
        holder.host == host() && theirs.boot == ours.boot && theirs.namespace == ours.namespace;
    comparable
        && match look_at(holder.pid) {
            Process::Began(started) => started != theirs.started,
            Process::Ended => true,
            Process::Hidden => false,
        }
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

fn process_mark(pid: u32) -> Option<ProcessMark> {
    Some(ProcessMark {
        boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()?
            .trim()
            .to_owned(),
        namespace: fs::read_link("/proc/self/ns/pid")
            .ok()?
            .to_string_lossy()
            .into_owned(),
        started: match look_at(pid) {
            Process::Began(started) => started,
            Process::Ended | Process::Hidden => return None,
        },
    })
}

/// What can be told of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    /// It began so many ticks after the boot.
    Began(u64),
    /// There is none, or only its remains.
    Ended,
    /// Nothing: others' processes are kept from us (`hidepid`), or what is told can't be read.
    Hidden,
}

fn look_at(pid: u32) -> Process {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    judge(stat.ok().as_deref(), || has_no_process(pid))
}

/// That a process can't be seen does not mean that there is none.
fn judge(stat: Option<&str>, has_no_process: impl FnOnce() -> bool) -> Process {
    match stat {
        Some(stat) => parse_stat(stat),
        None if has_no_process() => Process::Ended,
        None => Process::Hidden,
    }
}

/// Whether the kernel says that there is no process of this number.
fn has_no_process(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Parses `/proc/<pid>/stat` (see proc(5)): the command, in parentheses, may hold anything.
fn parse_stat(stat: &str) -> Process {
    let Some((_, after_command)) = stat.rsplit_once(')') else {
        return Process::Hidden;
    };
    let mut fields = after_command.split_ascii_whitespace();
    match fields.next() {
        Some("Z" | "X" | "x") => Process::Ended,
        Some(_) => match fields.nth(18).and_then(|started| started.parse().ok()) {
            Some(started) => Process::Began(started),
            None => Process::Hidden,
        },
        None => Process::Hidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_is_not_gone() {
        assert!(!is_gone(&this_process("test")));
        assert!(!is_gone(&named("test", "uid")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_ended_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mark = process_mark(child.id());
        let holder = Holder {
            pid: child.id(),
            process: mark,
            ..this_process("test")
        };
        assert!(!is_gone(&holder));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&holder));
        let elsewhere = Holder {
            host: "another".to_owned(),
            ..holder
        };
        assert!(!is_gone(&elsewhere));
    }

    /// With `hidepid` the files of a live process of another user are not there, or closed.
    #[test]
    fn a_process_that_can_not_be_seen_is_not_gone() {
        assert_eq!(judge(None, || false), Process::Hidden);
        assert_eq!(judge(None, || true), Process::Ended);
        assert_eq!(judge(Some(""), || true), Process::Hidden);
        assert!(!has_no_process(std::process::id()) && !has_no_process(1));
        // Numbers that are no process's, as a lock file may hold them.
        for pid in [0, u32::MAX, 1 << 31] {
            assert!(!has_no_process(pid));
        }
    }

    #[test]
    fn the_command_may_hold_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(
            parse_stat(&format!("77 (a b) R (c) {rest}")),
            Process::Began(4711)
        );
        assert_eq!(
            parse_stat(&format!("77 (a) {}", rest.replace('S', "Z"))),
            Process::Ended
        );
        assert_eq!(parse_stat("77 (a) S 1"), Process::Hidden);
        assert_eq!(parse_stat(""), Process::Hidden);
    }
}
