//! Where a cluster lives: a folder of its own for each number, and a lock beside it that is
//! held as long as the cluster runs.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};

use super::keeper;
use super::number::{Number, Port};

/// How much of a cluster there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Size {
    /// etcd and the API server: resources are stored, and nothing acts on them.
    ApiServer,
    /// Controllers and scheduler, too: a Job gets its pods, which run nowhere.
    ControlPlane,
    /// And a node, where pods run. Needs root.
    Node,
}

/// What is fixed about a cluster.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub number: Number,
    pub size: Size,
    /// All that the cluster writes, but for control groups and a network interface.
    pub folder: PathBuf,
}

impl Site {
    fn new(number: Number, size: Size) -> Self {
        let folder = clusters_folder().join(number.to_string());
        Self {
            number,
            size,
            folder,
        }
    }

    /// Takes the first number that nobody uses, and removes what earlier runs have left.
    pub fn claim(size: Size) -> Result<(Self, File)> {
        for number in Number::for_tests() {
            let left = Self::new(number, size);
            if left.exists()
                && let Some(_lock) = left.try_lock()?
            {
                keeper::remove(&left)?;
            }
        }
        for number in Number::for_tests() {
            let site = Self::new(number, size);
            let Some(lock) = site.try_lock()? else {
                continue;
            };
            if number.is_free() {
                site.create()?;
                return Ok((site, lock));
            }
            fs::remove_file(site.lock())?;
        }
        bail!(
            "every number for a cluster is in use; see {}",
            clusters_folder().display()
        )
    }

    /// The cluster that people start by hand.
    pub fn for_people() -> Result<Self> {
        Ok(Self::new(Number::for_people()?, Size::Node))
    }

    /// Keeps other commands from the cluster as long as the result lives.
    pub fn lock_for_command(&self) -> Result<File> {
        match self.try_lock()? {
            Some(lock) => Ok(lock),
            None => bail!("another command works on the cluster; try again when it has ended"),
        }
    }

    /// Whether there is anything of it.
    pub fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// Makes the folder, for its owner's eyes only: there are keys in it.
    pub fn create(&self) -> Result<()> {
        make_private_folder(&self.folder)
    }

    fn try_lock(&self) -> Result<Option<File>> {
        let folder = clusters_folder();
        // In the node's own view of the machine these are empty.
        for covered in ["/run", "/var/run", "/var/lib", "/var/log"] {
            ensure!(
                !folder.starts_with(covered),
                "clusters can't live below {covered}: set SIDECARJOB_CLUSTERS to a folder elsewhere"
            );
        }
        let path = self.lock();
        loop {
            // The last to hold it takes the file away, and the folder with the last of them.
            make_private_folder(&folder)?;
            let opened = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path);
            let lock = match opened {
                Ok(lock) => lock,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(error).with_context(|| format!("can't open {}", path.display()));
                }
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => {
                    return Err(error).with_context(|| format!("can't lock {}", path.display()));
                }
            }
            let is_still_there = fs::metadata(&path)
                .is_ok_and(|there| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
            if is_still_there {
                return Ok(Some(lock));
            }
        }
    }

    /// The file that is locked as long as the cluster runs.
    pub fn lock(&self) -> PathBuf {
        self.folder.with_extension("lock")
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// A file of keys and certificates.
    pub fn pki(&self, name: &str) -> PathBuf {
        self.folder.join("pki").join(name)
    }

    /// Where the API server listens: on loopback, or where pods reach it as well.
    pub fn api_address(&self) -> SocketAddr {
        match self.size {
            Size::ApiServer | Size::ControlPlane => self.number.loopback(Port::ApiServer),
            Size::Node => (self.number.service_address(), 443).into(),
        }
    }

    /// This machine as pods see it, or as its own programs do where there are no pods.
    pub fn gateway(&self) -> Ipv4Addr {
        match self.size {
            Size::ApiServer | Size::ControlPlane => Ipv4Addr::LOCALHOST,
            Size::Node => self.number.gateway(),
        }
    }
}

/// Where a user's clusters are, each in a folder by its number.
fn clusters_folder() -> PathBuf {
    match std::env::var_os("SIDECARJOB_CLUSTERS") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => {
            let user = rustix::process::getuid();
            std::env::temp_dir().join(format!("sidecarjob-clusters-{}", user.as_raw()))
        }
    }
}

fn make_private_folder(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("can't make {}", folder.display()))?;
    // In a folder for everybody, somebody else may have made it first.
    let owner = match fs::symlink_metadata(folder) {
        Ok(metadata) => metadata.uid(),
        // Or taken it away again, which the next step finds out.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(format!("can't look at {}", folder.display())),
    };
    ensure!(
        owner == rustix::process::getuid().as_raw(),
        "{} belongs to another user",
        folder.display()
    );
    Ok(())
}
