//! A real S3 server on a free loopback port, for the length of a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::tool::find_tool;

const ACCESS_KEY: &str = "testkey";
const SECRET_KEY: &str = "testsecret1234567890";
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server with data of its own; it ends, and its data goes, when this is dropped.
#[derive(Debug)]
pub struct S3Server {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl S3Server {
    /// Starts a server; none, and a line that says `SKIPPED`, where it is not installed.
    ///
    /// # Panics
    /// If it can't start, or with `SIDECARJOB_STRICT=1` if it is not installed.
    pub fn start() -> Option<Self> {
        let binary = find_tool("versitygw")?;
        match Self::start_binary(&binary) {
            Ok(server) => Some(server),
            Err(error) => panic!("{} does not start: {error:#}", binary.display()),
        }
    }

    fn start_binary(binary: &Path) -> Result<Self> {
        // Another program may take the port between our look and the server's start.
        let mut last_error = None;
        for _ in 0..5 {
            match Self::try_start(binary, free_port()?) {
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
        for name in ["data", "iam"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let log = std::fs::File::create(folder.path().join("log"))?;
        let process = Command::new(binary)
            .args(["--access", ACCESS_KEY, "--secret", SECRET_KEY])
            .args(["--port", &address.to_string()])
            .args(["--keep-alive", "--quiet", "--health", "/health"])
            .arg("--iam-dir")
            .arg(folder.path().join("iam"))
            .arg("posix")
            .arg(folder.path().join("data"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("can't be run")?;
        let mut server = Self {
            process,
            address,
            folder,
        };
        server.wait_until_healthy()?;
        Ok(server)
    }

    fn wait_until_healthy(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !is_healthy(self.address) {
            let log =
                || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                bail!("it ended with {status}: {}", log());
            }
            if Instant::now() > deadline {
                bail!("it is not healthy after {START_LIMIT:?}: {}", log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// URL to give as endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its only access key.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// The secret that goes with the access key.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// Environment for a program that is to use this server.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_string()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_string()),
            ("AWS_REGION", "us-east-1".to_string()),
            ("AWS_ENDPOINT_URL_S3", self.endpoint()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_string()),
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
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address that nobody listens at now.
pub(crate) fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

fn is_healthy(address: SocketAddr) -> bool {
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
