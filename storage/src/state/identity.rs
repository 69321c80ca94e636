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
    comparable && process_start(holder.pid) != Some(theirs.started)
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
        started: process_start(pid)?,
    })
}

/// When a process began, in ticks since boot; `None` if there is none, or only its remains.
fn process_start(pid: u32) -> Option<u64> {
    parse_process_start(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/<pid>/stat` (see proc(5)): the command, in parentheses, may hold anything.
fn parse_process_start(stat: &str) -> Option<u64> {
    let (_, after_command) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_command.split_ascii_whitespace().collect();
    let (state, started) = (fields.first()?, fields.get(19)?);
    let has_ended = matches!(*state, "Z" | "X" | "x");
    if has_ended {
        None
    } else {
        started.parse().ok()
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

    #[test]
    fn the_command_may_hold_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(
            parse_process_start(&format!("77 (a b) R (c) {rest}")),
            Some(4711)
        );
        assert_eq!(
            parse_process_start(&format!("77 (a) {}", rest.replace('S', "Z"))),
            None
        );
        assert_eq!(parse_process_start("77 (a) S 1"), None);
        assert_eq!(parse_process_start(""), None);
    }
}
