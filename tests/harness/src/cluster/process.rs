//! Processes that are known by id and start time, so that an id which the kernel has given
//! to somebody else is never taken for ours, not even by a later program.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const POLL: Duration = Duration::from_millis(20);

/// A process of some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    id: u32,
    /// Ticks since the machine was started; see proc(5), `starttime`.
    started: u64,
}

impl Process {
    /// The process that has this id now; none if it has ended.
    pub fn of(id: u32) -> Option<Self> {
        let started = start_time(id)?;
        Some(Self { id, started })
    }

    pub fn id(self) -> u32 {
        self.id
    }

    /// Whether it has not ended. A process that only waits to be noticed by its parent has.
    pub fn is_running(self) -> bool {
        Self::of(self.id) == Some(self)
    }

    /// Sends a signal; one that has ended by itself is no error.
    pub fn signal(self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        let id = id.with_context(|| format!("{} is no process id", self.id))?;
        // The handle is ours once the start time is checked after it was opened.
        let handle = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(handle) if self.is_running() => handle,
            Ok(_) | Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error).context("can't open a process"),
        };
        match pidfd_send_signal(handle, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("can't send a signal"),
        }
    }

    /// Waits until it has ended.
    pub fn wait_until_ended(self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            ensure!(
                Instant::now() < deadline,
                "process {} runs on after {limit:?}",
                self.id
            );
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Its first child, as soon as it has one.
    pub fn wait_for_child(self, limit: Duration) -> Result<Self> {
        let deadline = Instant::now() + limit;
        let list = format!("/proc/{id}/task/{id}/children", id = self.id);
        loop {
            let children = fs::read_to_string(&list).unwrap_or_default();
            let child = children.split_whitespace().next();
            if let Some(child) = child.and_then(|id| Self::of(id.parse().ok()?)) {
                return Ok(child);
            }
            ensure!(self.is_running(), "process {} ended", self.id);
            ensure!(
                Instant::now() < deadline,
                "process {} started no other after {limit:?}",
                self.id
            );
            std::thread::sleep(POLL);
        }
    }
}

/// When a process was started; none if it has ended.
fn start_time(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let state = *fields.first()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The processes of one cluster: a record of each in `run/`, what they say in `logs/`.
#[derive(Debug)]
pub(super) struct Processes {
    folder: PathBuf,
    /// Those that this program started, to be noticed when they have ended.
    children: Mutex<Vec<Child>>,
}

impl Processes {
    pub fn in_folder(folder: &Path) -> Result<Self> {
        for name in ["run", "logs"] {
            fs::create_dir_all(folder.join(name))
                .with_context(|| format!("can't make {}", folder.join(name).display()))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            children: Mutex::default(),
        })
    }

    /// Starts a program in the background, in a process group of its own: an interrupt
    /// from the keyboard is not for it.
    pub fn start(&self, name: &str, mut command: Command) -> Result<Process> {
        let process = self.spawn(name, &mut command)?;
        self.record(name, process)?;
        Ok(process)
    }

    /// As [`Self::start`], where the command is an entrance into a namespace, whose first
    /// child is the program.
    pub fn start_through(&self, name: &str, mut entrance: Command) -> Result<Process> {
        let outside = self.spawn(name, &mut entrance)?;
        let inside = outside
            .wait_for_child(Duration::from_secs(10))
            .with_context(|| format!("{name} does not start: {}", self.log_tail(name)))?;
        self.record(name, inside)?;
        Ok(inside)
    }

    fn spawn(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(name))
            .with_context(|| format!("can't open {}", self.log(name).display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("can't start {}", command.get_program().display()))?;
        let id = child.id();
        self.children().push(child);
        match Process::of(id) {
            Some(process) => Ok(process),
            None => bail!("{name} ended at once: {}", self.log_tail(name)),
        }
    }

    fn record(&self, name: &str, process: Process) -> Result<()> {
        let record = self.folder.join("run").join(format!("{name}.pid"));
        fs::write(&record, format!("{} {}\n", process.id, process.started))
            .with_context(|| format!("can't write {}", record.display()))
    }

    /// The process of that name, if it runs.
    pub fn find(&self, name: &str) -> Option<Process> {
        let record = self.folder.join("run").join(format!("{name}.pid"));
        let text = fs::read_to_string(record).ok()?;
        let (id, started) = text.trim().split_once(' ')?;
        let process = Process {
            id: id.parse().ok()?,
            started: started.parse().ok()?,
        };
        process.is_running().then_some(process)
    }

    /// Signals the process of that name and waits for its end; nothing if it does not run.
    pub fn end(&self, name: &str, signal: Signal, limit: Duration) -> Result<()> {
        if let Some(process) = self.find(name) {
            process.signal(signal)?;
            process
                .wait_until_ended(limit)
                .with_context(|| format!("{name} does not end"))?;
        }
        self.notice_ended();
        Ok(())
    }

    /// Takes note of children that have ended, so that they do not stay as zombies.
    pub fn notice_ended(&self) {
        self.children()
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn children(&self) -> std::sync::MutexGuard<'_, Vec<Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a process writes what it has to say.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    /// The last lines of a log, for an error.
    pub fn log_tail(&self, name: &str) -> String {
        log_tail(&self.log(name), 15)
    }
}

/// The last lines of a file, as far as they can be read.
pub(super) fn log_tail(log: &Path, lines: usize) -> String {
    use std::io::{Read, Seek, SeekFrom};
    const NEAR_THE_END: u64 = 64 * 1024;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(NEAR_THE_END)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_process_is_found_signalled_and_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let processes = Processes::in_folder(folder.path()).unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = processes.start("sleeper", command).unwrap();
        assert_eq!(processes.find("sleeper"), Some(process));
        // Another program with the same folder finds it, too.
        let other = Processes::in_folder(folder.path()).unwrap();
        assert_eq!(other.find("sleeper"), Some(process));
        processes
            .end("sleeper", Signal::KILL, Duration::from_secs(10))
            .unwrap();
        assert_eq!(processes.find("sleeper"), None);
        assert!(!Path::new(&format!("/proc/{}", process.id())).exists());
    }

    #[test]
    fn an_id_given_to_somebody_else_is_not_ours() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.is_running());
        let earlier = Process {
            id: own.id,
            started: own.started - 1,
        };
        assert!(!earlier.is_running());
        // Or this test would end here.
        earlier.signal(Signal::KILL).unwrap();
    }

    #[test]
    fn children_are_found_through_their_parent() {
        let folder = tempfile::tempdir().unwrap();
        let processes = Processes::in_folder(folder.path()).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000; true"]);
        let inside = processes.start_through("inside", command).unwrap();
        let program = fs::read_to_string(format!("/proc/{}/comm", inside.id())).unwrap();
        assert!(matches!(program.trim(), "sleep" | "sh"), "{program}");
        processes
            .end("inside", Signal::KILL, Duration::from_secs(10))
            .unwrap();
    }
}
