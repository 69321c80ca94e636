//! Runs the binary as a user or a pod would.

#![allow(dead_code, reason = "not every test binary needs all of it")]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What no run of these tests comes near.
const DEADLINE: Duration = Duration::from_secs(150);

/// A command that is being put together.
pub struct Worker(Command);

/// A process that may still run.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// What became of a process.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; none if a signal killed it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Worker {
    /// `shard-worker` with these arguments and nothing of the caller's settings.
    pub fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shard-worker"));
        command.args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("AWS_") || name.starts_with("SIDECARJOB_") || name == "RUST_LOG" {
                command.env_remove(&*name);
            }
        }
        Self(command)
    }

    /// The command on a manifest.
    pub fn on(command: &str, manifest: &Path) -> Self {
        Self::new(&[command]).argument(&manifest.display().to_string())
    }

    /// Adds an argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.0.arg(argument);
        self
    }

    /// Adds arguments that are written with a space between them.
    pub fn arguments(mut self, arguments: &str) -> Self {
        self.0.args(arguments.split_whitespace());
        self
    }

    /// Sets variables.
    pub fn environment(mut self, variables: &[(&'static str, String)]) -> Self {
        self.0
            .envs(variables.iter().map(|(name, value)| (*name, value)));
        self
    }

    /// Starts it in this folder.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn in_folder(mut self, folder: &Path) -> Self {
        self.0.current_dir(folder);
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        self.0.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.0.spawn().expect("the binary starts");
        let stdout = child.stdout.take().map(reader);
        let stderr = child.stderr.take().map(reader);
        Running {
            child,
            stdout,
            stderr,
        }
    }

    /// Runs it to its end.
    pub fn run(self) -> Ended {
        self.start().wait()
    }
}

/// Reads a pipe to its end, so that the process never waits for us.
fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // It may just have ended.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits until the condition holds; false if the process ends before.
    pub fn until(&mut self, mut condition: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if condition() {
                return true;
            }
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            assert!(
                Instant::now() < deadline,
                "what was waited for has not come"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end, and tells the most memory that it had, in KiB.
    pub fn wait_measured(mut self) -> (Ended, u64) {
        let status = format!("/proc/{}/status", self.id());
        let mut highest = 0;
        self.until(|| {
            // Gone with the process.
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("VmHWM:"));
            let peak = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            highest = highest.max(peak.unwrap_or(0));
            false
        });
        assert!(highest > 0, "the memory of the process was never seen");
        (self.wait(), highest)
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let ended = !self.until(|| false);
        assert!(ended);
        let code = self.child.wait().expect("a child").code();
        let text = |reader: Option<JoinHandle<String>>| {
            reader
                .map(|reader| reader.join().expect("a reader"))
                .unwrap_or_default()
        };
        Ended {
            code,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
        }
    }
}

impl Drop for Running {
    /// Not to be left behind, in particular not stopped.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Checks the exit code, and shows all that was said if it is another.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Checks that standard error says all of these.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not in:\n{}",
                self.stderr
            );
        }
        self
    }
}
