//! A real S3 server, for the length of a test: on a free port of this machine, with users
//! and rights of its own.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::tool::{find_program, find_tool};

mod policy;

pub use policy::Grant;

pub(crate) const ACCESS_KEY: &str = "testkey";
pub(crate) const SECRET_KEY: &str = "testsecret1234567890";
pub(crate) const REGION: &str = "us-east-1";
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server with data of its own; it ends, and its data goes, when this is dropped.
#[derive(Debug)]
pub struct S3Server {
    binary: PathBuf,
    process: Mutex<Child>,
    address: SocketAddr,
    folder: TempDir,
}

impl S3Server {
    /// Starts a server on loopback; none, and a line that says `SKIPPED`, where it is not
    /// installed.
    ///
    /// # Panics
    /// If it can't start, or with `SIDECARJOB_STRICT=1` if it is not installed.
    pub fn start() -> Option<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a server at an address of this machine, as at a cluster's gateway, where pods
    /// reach it; none, and a line that says `SKIPPED`, where it is not installed.
    ///
    /// # Panics
    /// If it can't start, or with `SIDECARJOB_STRICT=1` if it is not installed.
    pub fn start_at(host: IpAddr) -> Option<Self> {
        let binary = find_tool("versitygw")?;
        match Self::start_binary(&binary, host) {
            Ok(server) => Some(server),
            Err(error) => panic!("{} does not start: {error:#}", binary.display()),
        }
    }

    fn start_binary(binary: &Path, host: IpAddr) -> Result<Self> {
        // Another program may take the port between our look and the server's start.
        let mut last_error = None;
        for _ in 0..5 {
            match Self::try_start(binary, free_port(host)?) {
                Ok(server) => return Ok(server),
                Err(error) => last_error = Some(error),
            }
        }
        match last_error {
            Some(error) => Err(error),
            None => bail!("no attempt was made"),
        }
    }

    fn try_start(binary: &Path, address: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir().context("can't make a folder for the server")?;
        let log = File::create(folder.path().join("log"))?;
        let process = command(binary, address, folder.path())?
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("can't be run")?;
        let server = Self {
            binary: binary.to_owned(),
            process: Mutex::new(process),
            address,
            folder,
        };
        server.wait_until_healthy()?;
        Ok(server)
    }

    fn wait_until_healthy(&self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !is_healthy(self.address) {
            let log =
                || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            if let Some(status) = self.process().try_wait()? {
                bail!("it ended with {status}: {}", log());
            }
            if Instant::now() > deadline {
                bail!("it is not healthy after {START_LIMIT:?}: {}", log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the server as `kill -9` does; its data stays. Requests are refused from now on.
    pub fn kill(&self) {
        let mut process = self.process();
        // It may have ended by itself, which is just as well.
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Starts the server again after [`Self::kill`], at the same address.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&self) -> Result<()> {
        self.kill();
        let log = OpenOptions::new()
            .append(true)
            .open(self.folder.path().join("log"))?;
        *self.process() = command(&self.binary, self.address, self.folder.path())?
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("can't be run")?;
        self.wait_until_healthy()
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// URL to give as endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The access key of its administrator.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// The secret that goes with the access key.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// Environment for a program that is to use this server as its administrator.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.environment_of(ACCESS_KEY, SECRET_KEY)
    }

    /// Environment for a program that is to use this server as somebody else.
    pub fn environment_of(
        &self,
        access_key: &str,
        secret_key: &str,
    ) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", access_key.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret_key.to_owned()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ENDPOINT_URL_S3", self.endpoint()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// Makes a bucket and returns the folder in which its objects appear as files.
    ///
    /// # Panics
    /// If the folder can't be made.
    pub fn create_bucket(&self, name: &str) -> PathBuf {
        let bucket = self.folder.path().join("data").join(name);
        if let Err(error) = std::fs::create_dir_all(&bucket) {
            panic!("can't make bucket {name}: {error}");
        }
        bucket
    }

    /// Adds a user, who may do nothing until [`Self::grant`] says so. The name is the access
    /// key.
    ///
    /// # Panics
    /// If the server refuses the user.
    #[must_use]
    pub fn with_user(self, name: &str, secret: &str) -> Self {
        let output = Command::new(&self.binary)
            .args(["admin", "--access", ACCESS_KEY, "--secret", SECRET_KEY])
            .args(["--endpoint-url", &self.endpoint()])
            .args(["create-user", "--role", "user"])
            .args(["--access", name, "--secret", secret])
            .stdin(Stdio::null())
            .output();
        if let Err(error) = succeeded(output) {
            panic!("user {name}: {error:#}");
        }
        self
    }

    /// Says what users may do in a bucket, in place of all that was said before.
    ///
    /// # Panics
    /// If the server refuses it, or curl is not installed.
    pub fn grant(&self, bucket: &str, grants: &[Grant<'_>]) {
        if let Err(error) = self.put_policy(bucket, &policy::of(bucket, grants).to_string()) {
            panic!("policy of bucket {bucket}: {error:#}");
        }
    }

    /// Gives each user the statements of an identity's policy, in place of all that was said
    /// before.
    ///
    /// # Panics
    /// If the server refuses it, or curl is not installed.
    pub fn allow(&self, bucket: &str, policies: &[(&str, serde_json::Value)]) {
        if let Err(error) = self.put_policy(bucket, &policy::of_identities(policies).to_string()) {
            panic!("policy of bucket {bucket}: {error:#}");
        }
    }

    fn put_policy(&self, bucket: &str, policy: &str) -> Result<()> {
        let curl = find_program("curl", "curl").context("curl is needed to sign a request")?;
        let output = Command::new(curl)
            .args(["--silent", "--show-error", "--fail-with-body"])
            .args(["--noproxy", "*", "--request", "PUT"])
            .args(["--aws-sigv4", &format!("aws:amz:{REGION}:s3")])
            .args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")])
            .args([
                "--header",
                &format!("x-amz-content-sha256: {}", sha256(policy)),
            ])
            .args(["--data-binary", policy])
            .arg(format!("{}/{bucket}?policy=", self.endpoint()))
            .output();
        succeeded(output)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command that serves what is in `folder`, which may have been served before.
pub(crate) fn command(binary: &Path, address: SocketAddr, folder: &Path) -> Result<Command> {
    let data = folder.join("data");
    let users = folder.join("users");
    for made in [&data, &users] {
        std::fs::create_dir_all(made).with_context(|| format!("can't make {}", made.display()))?;
    }
    let mut command = Command::new(binary);
    command
        .args(["--access", ACCESS_KEY, "--secret", SECRET_KEY])
        .args(["--region", REGION, "--port", &address.to_string()])
        .args(["--keep-alive", "--quiet", "--health", "/health"])
        .arg("--iam-dir")
        .arg(users)
        .arg("posix")
        .arg(data);
    Ok(command)
}

fn succeeded(output: std::io::Result<Output>) -> Result<()> {
    let output = output.context("can't be run")?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said).trim()
    );
    Ok(())
}

fn sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// An address on a host of this machine that nobody listens at now.
fn free_port(host: IpAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((host, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

/// Whether the server answers.
pub(crate) fn is_healthy(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        connection.set_read_timeout(Some(Duration::from_secs(1)))?;
        connection
            .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0_u8; 12];
        connection.read_exact(&mut answer)?;
        Ok(&answer == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}
