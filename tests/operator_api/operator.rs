//! The operator's process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::place::{LIMIT, Place, eventually};

/// A running operator; it is ended when this is dropped, and its log printed if the test fails.
pub struct Operator {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

/// How one is started.
pub struct Start<'a> {
    pub place: &'a Place,
    /// The ServiceAccount: namespace and name.
    pub account: (&'a str, &'a str),
    pub arguments: Vec<String>,
    pub environment: Vec<(&'a str, String)>,
}

impl<'a> Start<'a> {
    /// As `config/` says, with what makes tests quick, and the right to the place's folder.
    pub fn new(place: &'a Place) -> Self {
        let folder = format!("{}={}/", place.namespace, place.folder.path().display());
        let arguments = [
            "--worker-image=localhost/worker:test",
            "--item-seconds=2",
            "--items-per-job=4",
            "--live-status-seconds=1",
            "--window-seconds=10",
            "--follow-seconds=1",
            // Where tests have their S3 servers, each at a port of its own.
            "--allow-endpoint=http://127.0.0.1:*",
            "--own-identity-prefix",
            &folder,
        ];
        Self {
            place,
            account: ("sidecarjob-system", "sidecarjob-operator"),
            arguments: arguments.map(str::to_owned).into(),
            environment: Vec::new(),
        }
    }

    /// As `config/` says, with the pace that it has there.
    pub fn unhurried(place: &'a Place) -> Self {
        let mut start = Self::new(place);
        let hurried =
            |argument: &String| argument.contains("-seconds=") || argument.contains("-per-job=");
        start.arguments.retain(|argument| !hurried(argument));
        start
    }

    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub fn variable(mut self, name: &'a str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    pub async fn begin(self) -> Operator {
        let (namespace, name) = self.account;
        let kubeconfig = self
            .place
            .cluster
            .service_account_kubeconfig(namespace, name);
        let kubeconfig = kubeconfig.await.unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let log = self
            .place
            .folder
            .path()
            .join(format!("operator-{}.log", address.port()));
        let child = Command::new(env!("CARGO_BIN_EXE_sidecarjob-operator"))
            .args(&self.arguments)
            .arg(format!("--listen={address}"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.place.folder.path())
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAMESPACE", namespace)
            .env("POD_NAME", format!("replica-{}", address.port()))
            .env("SIDECARJOB_LOG", "info,operator=debug")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Operator {
            child,
            address,
            log,
        }
    }
}

impl Operator {
    /// Begins one as `config/` says and waits until it is the leader.
    pub async fn begin(place: &Place) -> Self {
        let operator = Start::new(place).begin().await;
        operator.wait_for("leader").await;
        operator
    }

    /// Waits until it is ready, as `leader` or `standing by`.
    pub async fn wait_for(&self, part: &str) {
        eventually(&format!("the operator is {part}"), async || {
            let (status, text) = self.get("/readyz").await?;
            (status == 200 && text.trim() == part).then_some(())
        })
        .await;
    }

    /// What it answers to GET: status and text.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut connection = TcpStream::connect(self.address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some((status, body.to_owned()))
    }

    /// The sum of the series of a metric whose line has `labels` in it; none if there are none.
    pub async fn metric(&self, name: &str, labels: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        let values: Vec<f64> = text
            .lines()
            .filter(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// As `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As the kubelet ends a container.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_for_exit()
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).unwrap();
    }

    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the operator does not end: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // One that is told to end gives its Lease back, and the next test need not wait for it.
        let deadline = Instant::now() + Duration::from_secs(10);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        // It may have ended, which is just as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let end = &lines[lines.len().saturating_sub(80)..];
            eprintln!("the operator's log ends with\n{}", end.join("\n"));
        }
    }
}
