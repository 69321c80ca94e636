//! etcd and kube-apiserver on free loopback ports, for the length of a test. No root, no
//! node: what the API server says about resources, and nothing else.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::tool::find_tool;

const START_LIMIT: Duration = Duration::from_secs(90);

/// The token of an administrator. The server listens on loopback only.
const TOKEN: &str = "test-administrator";

/// A running API server with an etcd of its own; both end, and their data goes, when this
/// is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: the API server first, the folder last.
    api_server: Process,
    _etcd: Process,
    address: SocketAddr,
    folder: TempDir,
}

/// A process that is killed when this is dropped. Neither program starts others.
#[derive(Debug)]
struct Process {
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is just as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ControlPlane {
    /// Starts both; none, and a line that says `SKIPPED`, where one is not installed.
    ///
    /// # Panics
    /// If one can't start, or with `SIDECARJOB_STRICT=1` if it is not installed.
    pub fn start() -> Option<Self> {
        let etcd = find_tool("etcd")?;
        let api_server = find_tool("kube-apiserver")?;
        // Another program may take a port between our look and the start.
        for attempt in 1.. {
            match Self::try_start(&etcd, &api_server) {
                Ok(control_plane) => return Some(control_plane),
                Err(error) if attempt < 3 => eprintln!("attempt {attempt}: {error:#}"),
                Err(error) => panic!("no control plane: {error:#}"),
            }
        }
        None
    }

    /// A file for `KUBECONFIG`, with the rights of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn try_start(etcd: &Path, api_server: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("can't make a folder for the control plane")?;
        let [client, peer, secure] = free_ports()?;
        let deadline = Instant::now() + START_LIMIT;
        let etcd = start_etcd(etcd, folder.path(), client, peer)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, secure));
        let api_server = start_api_server(api_server, folder.path(), client, address)?;
        let mut control_plane = Self {
            api_server,
            _etcd: etcd,
            address,
            folder,
        };
        control_plane.wait_until_ready(deadline)?;
        Ok(control_plane)
    }

    /// Waits until `/readyz` says ok. The certificate that the server made for itself is
    /// its own root, so it can be trusted as soon as it is there.
    fn wait_until_ready(&mut self, deadline: Instant) -> Result<()> {
        let certificate = self.folder.path().join("tls/apiserver.crt");
        loop {
            if let Some(status) = self.api_server.child.try_wait()? {
                bail!(
                    "kube-apiserver ended ({status}): {}",
                    tail(&self.api_server.log)
                );
            }
            if certificate.is_file() && self.is_ready(&certificate) {
                return self.write_kubeconfig(&certificate);
            }
            ensure!(
                Instant::now() < deadline,
                "kube-apiserver is not ready after {} s: {}",
                START_LIMIT.as_secs(),
                tail(&self.api_server.log)
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn is_ready(&self, certificate: &Path) -> bool {
        let output = Command::new("curl")
            .args(["--silent", "--fail", "--max-time", "5", "--noproxy", "*"])
            .arg("--cacert")
            .arg(certificate)
            .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
            .arg(format!("https://{}/readyz", self.address))
            .output();
        output.is_ok_and(|output| output.status.success())
    }

    fn write_kubeconfig(&self, certificate: &Path) -> Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority": certificate,
            }}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        });
        fs::write(self.kubeconfig(), config.to_string()).context("can't write the kubeconfig")
    }
}

fn start_etcd(binary: &Path, folder: &Path, client: u16, peer: u16) -> Result<Process> {
    let client = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = Command::new(binary);
    command
        .args(["--name=test", "--unsafe-no-fsync", "--log-level=warn"])
        .arg(format!("--data-dir={}", folder.join("etcd").display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=test={peer}"));
    spawn(command, folder.join("etcd.log"))
}

fn start_api_server(
    binary: &Path,
    folder: &Path,
    etcd: u16,
    address: SocketAddr,
) -> Result<Process> {
    let tokens = folder.join("tokens.csv");
    fs::write(&tokens, format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
    let key = folder.join("service-account.key");
    let made = Command::new("openssl")
        .args([
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-noout",
            "-out",
        ])
        .arg(&key)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("openssl is needed to make a key")?;
    ensure!(made.success(), "openssl can't make a key");
    let mut command = Command::new(binary);
    command
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd}"))
        .arg(format!("--bind-address={}", address.ip()))
        .arg(format!("--secure-port={}", address.port()))
        // Never dialled: there is no node. A loopback address is refused here.
        .args([
            "--advertise-address=198.51.100.1",
            "--endpoint-reconciler-type=none",
        ])
        .arg(format!("--cert-dir={}", folder.join("tls").display()))
        .arg(format!("--token-auth-file={}", tokens.display()))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", key.display()))
        .arg(format!(
            "--service-account-signing-key-file={}",
            key.display()
        ))
        .args([
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
        ])
        // No controller makes the service accounts that it would ask for.
        .args([
            "--disable-admission-plugins=ServiceAccount",
            "--profiling=false",
        ]);
    spawn(command, folder.join("kube-apiserver.log"))
}

fn spawn(mut command: Command, log: PathBuf) -> Result<Process> {
    let output = File::create(&log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("can't start {}", command.get_program().display()))?;
    Ok(Process { child, log })
}

/// Ports that were free a moment ago; all are held until the last is found.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// The end of a log, for an error.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
