//! What ends a cluster: a process beside the one that owns it, so that nothing is left
//! behind however the owner ends.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::site::Site;

const SCRIPT: &str = include_str!("keeper.sh");

/// The keeper of a running cluster.
#[derive(Debug)]
pub(super) struct Keeper {
    process: Child,
    /// Closed by us, or by the kernel when this process ends, it starts the removal.
    owner: Option<ChildStdin>,
}

impl Keeper {
    /// Holds the site's lock until everything is removed.
    pub fn start(site: &Site, lock: File) -> Result<Self> {
        let mut process = command(site)
            .stdin(Stdio::piped())
            .stdout(lock)
            .spawn()
            .context("can't start sh")?;
        let owner = process.stdin.take();
        Ok(Self { process, owner })
    }

    /// Ends the cluster and waits until nothing is left of it.
    pub fn finish(&mut self) -> Result<()> {
        drop(self.owner.take());
        let status = self.process.wait().context("lost the keeper")?;
        ensure!(status.success(), "something is left of the cluster");
        Ok(())
    }
}

/// Removes a cluster that nobody owns, and its lock, which the caller holds.
pub(super) fn remove(site: &Site) -> Result<()> {
    let status = command(site)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("can't start sh")?;
    ensure!(
        status.success(),
        "something is left of the cluster in {}",
        site.folder.display()
    );
    Ok(())
}

fn command(site: &Site) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", SCRIPT, "keeper"])
        .arg(&site.folder)
        .arg(site.number.cgroup())
        .arg(site.number.interface())
        .arg(site.lock())
        // An interrupt from the keyboard ends the owner, and only then the cluster.
        .process_group(0);
    command
}
