//! The one cluster, with the operator as `kubectl apply -k config/` installs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::cluster::Cluster;
use harness::image::Image;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::worker_program::worker;

/// Where the operator is.
pub const SYSTEM: &str = "sidecarjob-system";

/// What makes runs of seconds of those that take hours, and the lock of a writer that is gone
/// one that is soon free.
const SETTINGS: [(&str, &str); 6] = [
    ("SIDECARJOB_ITEM_SECONDS", "4"),
    ("SIDECARJOB_LIVE_STATUS_SECONDS", "1"),
    ("SIDECARJOB_WINDOW_SECONDS", "10"),
    ("SIDECARJOB_FOLLOW_SECONDS", "1"),
    ("SIDECARJOB_LOCK_TTL_SECONDS", "20"),
    ("SIDECARJOB_SILENT_SECONDS", "75"),
];

/// Tests run side by side, but for those that disturb what all share.
static NODE: RwLock<()> = RwLock::const_new(());

/// Keeps what all share as it is.
pub async fn shared() -> RwLockReadGuard<'static, ()> {
    NODE.read().await
}

/// Waits until no other test runs, and lets none begin.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    NODE.write().await
}

/// The cluster, with images and operator; none where there can't be one, which it says.
pub fn cluster() -> Option<&'static Cluster> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let cluster = Cluster::for_tests()?;
    INSTALLED.get_or_init(|| install(cluster));
    Some(cluster)
}

fn install(cluster: &Cluster) {
    let programs = tempfile::tempdir().unwrap();
    let operator = Path::new(env!("CARGO_BIN_EXE_sidecarjob-operator"));
    let operator = Image::of_operator(&stripped(operator, &programs)).unwrap();
    let worker = Image::of_worker(&stripped(worker(), &programs)).unwrap();
    for image in [operator, worker] {
        cluster.import_image(&image).unwrap();
    }
    let file = programs.path().join("installation.json");
    std::fs::write(&file, installation(cluster).to_string()).unwrap();
    let file = file.display().to_string();
    cluster
        .kubectl(&["apply", "--server-side", "-f", &file])
        .unwrap();
    let deployment = ["deployment/sidecarjob-operator", "--namespace", SYSTEM];
    let wait = ["wait", "--for=condition=Available", "--timeout=120s"];
    if let Err(error) = cluster.kubectl(&[&wait[..], &deployment].concat()) {
        let logs = cluster.kubectl(&[&["logs"], &deployment[..]].concat());
        panic!("{error:#}\n{logs:?}\n{}", cluster.report());
    }
}

/// What `config/` has, with the settings of the tests.
fn installation(cluster: &Cluster) -> Value {
    let config = repository().join("config").display().to_string();
    let text = cluster.kubectl(&["kustomize", &config]).unwrap();
    let documents = text.split("\n---\n");
    let mut objects: Vec<Value> = documents
        .map(|document| serde_yaml::from_str(document).unwrap())
        .collect();
    let deployment = objects
        .iter_mut()
        .find(|object| object["kind"] == "Deployment")
        .unwrap();
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let environment = container["env"].as_array_mut().unwrap();
    // Each test has an S3 server of its own there.
    let endpoints = format!("http://{}:*", cluster.gateway().unwrap());
    let endpoints = ("SIDECARJOB_ALLOW_ENDPOINTS", endpoints.as_str());
    for (name, value) in SETTINGS.into_iter().chain([endpoints]) {
        environment.push(json!({"name": name, "value": value}));
    }
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}

/// A copy without what only debuggers read, which is most of a program that is built for tests.
fn stripped(program: &Path, folder: &TempDir) -> PathBuf {
    let copy = folder.path().join(program.file_name().unwrap());
    let strip = Command::new("strip")
        .arg("-o")
        .args([&copy, program])
        .status();
    match strip {
        Ok(status) if status.success() => copy,
        // Then it is large, and as good.
        _ => program.to_owned(),
    }
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
