//! Somebody else's cluster, on which the tests run instead of one of ours.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::image::Image;

/// A cluster that was there before, as the environment describes it.
#[derive(Debug)]
pub(super) struct Existing {
    pub kubeconfig: PathBuf,
    /// For kubeconfigs of service accounts.
    pub folder: tempfile::TempDir,
}

impl Existing {
    /// The cluster that `SIDECARJOB_KUBECONFIG` or `KUBECONFIG` names, if
    /// `SIDECARJOB_E2E_EXISTING=1` says that tests may use it.
    pub fn from_environment() -> Result<Option<Self>> {
        if std::env::var_os("SIDECARJOB_E2E_EXISTING").is_none_or(|value| value != "1") {
            return Ok(None);
        }
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let kubeconfig = set("SIDECARJOB_KUBECONFIG")
            .or_else(|| set("KUBECONFIG"))
            .context("SIDECARJOB_E2E_EXISTING=1 needs KUBECONFIG to name the cluster")?;
        Ok(Some(Self {
            kubeconfig: kubeconfig.into(),
            folder: tempfile::tempdir()?,
        }))
    }

    /// This machine as the cluster's pods see it, which only its owner can know.
    pub fn gateway(&self) -> Result<IpAddr> {
        let address = std::env::var("SIDECARJOB_E2E_GATEWAY").context(
            "set SIDECARJOB_E2E_GATEWAY to the address by which pods reach servers on this machine",
        )?;
        address
            .parse()
            .with_context(|| format!("SIDECARJOB_E2E_GATEWAY is no address: {address}"))
    }

    /// Imports an image by a command that gets the archive's path as its last argument, as
    /// in `kind load image-archive`.
    pub fn import(&self, image: &Image) -> Result<()> {
        let loader = std::env::var("SIDECARJOB_E2E_IMPORT").context(
            "set SIDECARJOB_E2E_IMPORT to a command that brings an image archive into the \
             cluster, as in `kind load image-archive`",
        )?;
        let (archive, _) = image.archive()?;
        let path = self.folder.path().join("image.tar");
        std::fs::write(&path, archive)?;
        let status = Command::new("sh")
            .args(["-c", &format!("{loader} \"$1\""), "import"])
            .arg(&path)
            .status()
            .context("can't run sh")?;
        ensure!(status.success(), "{loader} failed with {}", image.name());
        Ok(())
    }
}
