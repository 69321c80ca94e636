//! What is asked of a node's containerd past Kubernetes: images brought in, containers killed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::image::Image;

/// What containerd's Kubernetes side marks the images with that it knows.
const KNOWN: &str = "io.cri-containerd.image=managed";

/// Imports an image; does nothing if the node has the same already.
pub(super) fn import(socket: &Path, image: &Image) -> Result<()> {
    let (archive, digest) = image.archive()?;
    if is_known(socket, &image.reference(), &digest)? {
        return Ok(());
    }
    let output = with_input(control(socket).args(["images", "import", "-"]), &archive)?;
    ensure!(
        output.status.success(),
        "containerd refuses {}: {}",
        image.name(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    // Kubelet sees it only a moment later.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_known(socket, &image.reference(), &digest)? {
        ensure!(
            Instant::now() < deadline,
            "{} was imported, but kubelet can't see it",
            image.name()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Kills a container by its id as Kubernetes writes it, `containerd://ID`.
pub(super) fn kill(socket: &Path, id: &str) -> Result<()> {
    let id = id
        .strip_prefix("containerd://")
        .with_context(|| format!("there is no container yet: its id is {id:?}"))?;
    let output = control(socket)
        .args(["tasks", "kill", "--signal", "SIGKILL", id])
        .output()
        .context("can't run ctr")?;
    ensure!(
        output.status.success(),
        "containerd does not kill {id}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Whether containerd answers.
pub(super) fn is_served(socket: &Path) -> bool {
    let output = control(socket).arg("version").output();
    output.is_ok_and(|output| output.status.success())
}

fn is_known(socket: &Path, name: &str, digest: &str) -> Result<bool> {
    let output = control(socket)
        .args(["images", "list", &format!("name=={name}")])
        .output()
        .context("can't run ctr")?;
    if !output.status.success() {
        bail!(
            "containerd does not say which images it has: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let list = String::from_utf8_lossy(&output.stdout);
    Ok(list
        .lines()
        .any(|line| line.contains(digest) && line.contains(KNOWN)))
}

fn control(socket: &Path) -> Command {
    let mut command = Command::new("ctr");
    command
        .arg("--address")
        .arg(socket)
        .args(["--namespace", "k8s.io"]);
    command
}

fn with_input(command: &mut Command, input: &[u8]) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("can't run ctr")?;
    let written = match child.stdin.take() {
        Some(mut pipe) => pipe.write_all(input),
        None => Ok(()),
    };
    let output = child.wait_with_output()?;
    // What the program says is better than that it did not read on.
    if output.status.success() {
        written.context("ctr did not read the whole image")?;
    }
    Ok(output)
}
