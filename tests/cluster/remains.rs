//! What is left of a cluster: nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Component};

const OWNER: &str = "remains::owner";

/// Everything of a cluster that is seen from outside.
struct Traces {
    folder: PathBuf,
    number: String,
    processes: Vec<u32>,
}

impl Traces {
    fn of(cluster: &Cluster) -> Self {
        let kubeconfig = cluster.kubeconfig();
        let folder = kubeconfig.ancestors().nth(2).unwrap().to_owned();
        let number = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let components = [
            Component::Etcd,
            Component::ApiServer,
            Component::ControllerManager,
            Component::Scheduler,
            Component::Containerd,
            Component::Kubelet,
        ];
        let processes = components
            .iter()
            .filter_map(|component| cluster.process_id(*component))
            .collect();
        Self {
            folder,
            number,
            processes,
        }
    }

    /// What there is of it now, each in words.
    fn remains(&self) -> Vec<String> {
        let mut remains = Vec::new();
        for id in &self.processes {
            if Path::new(&format!("/proc/{id}")).exists() {
                remains.push(format!("process {id}"));
            }
        }
        for place in [
            self.folder.clone(),
            self.folder.with_extension("lock"),
            format!("/sys/class/net/sidecarjob{}", self.number).into(),
            format!("/sys/fs/cgroup/sidecarjob-{}", self.number).into(),
        ] {
            if place.exists() {
                remains.push(place.display().to_string());
            }
        }
        for hierarchy in fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let group = hierarchy.path().join(format!("sidecarjob-{}", self.number));
            if group.exists() {
                remains.push(group.display().to_string());
            }
        }
        // In whatever namespace: a node's mounts are known by its number, those of pods by
        // the folder.
        let mounted = [
            format!(" sidecarjob-{} ", self.number),
            format!("{}/", self.folder.display()),
        ];
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
            if mounted.iter().any(|mark| mounts.contains(mark)) {
                remains.push(format!("mounts of {}", process.path().display()));
            }
        }
        remains
    }
}

#[test]
fn two_nodes_live_side_by_side_and_leave_nothing() {
    let Some(shared) = Cluster::for_tests() else {
        return;
    };
    if !shared.is_own() {
        harness::tool::skip("the shared cluster is somebody else's");
        return;
    }
    let Some(cluster) = Cluster::node() else {
        return;
    };
    let traces = Traces::of(&cluster);
    assert_eq!(traces.processes.len(), 6);
    let present = traces.remains();
    // Processes, folder, interface, control groups and mounts: the test would see them.
    for kind in [
        "process ",
        "/sys/class/net/",
        "/sys/fs/cgroup/",
        "mounts of ",
    ] {
        assert!(
            present.iter().any(|one| one.starts_with(kind)),
            "no {kind} in {present:?}"
        );
    }
    for each in [shared, &cluster] {
        let nodes = each.kubectl(&["get", "nodes", "--no-headers"]).unwrap();
        assert_eq!(nodes.lines().count(), 1, "{nodes}");
    }
    drop(cluster);
    assert_eq!(traces.remains(), Vec::<String>::new());
    assert!(shared.is_running(Component::Etcd));
}

#[test]
fn a_killed_owner_leaves_nothing() {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", OWNER, "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(owner.stdout.take().unwrap());
    let told = output.lines().map_while(Result::ok).find_map(|line| {
        let (folder, processes) = line.strip_prefix("owner: ")?.split_once(' ')?;
        let folder = PathBuf::from(folder);
        Some(Traces {
            number: folder.file_name()?.to_str()?.to_owned(),
            folder,
            processes: processes.split(' ').map(|id| id.parse().unwrap()).collect(),
        })
    });
    owner.kill().unwrap();
    owner.wait().unwrap();
    let Some(traces) = told else {
        // It had no cluster, and has said why.
        assert!(Cluster::control_plane().is_none());
        return;
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !traces.remains().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", traces.remains());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Owns a cluster until it is killed.
#[test]
#[ignore = "a part of the test above"]
fn owner() {
    let Some(cluster) = Cluster::control_plane() else {
        return;
    };
    let traces = Traces::of(&cluster);
    let processes: Vec<String> = traces.processes.iter().map(u32::to_string).collect();
    println!(
        "\nowner: {} {}",
        traces.folder.display(),
        processes.join(" ")
    );
    std::thread::park();
}
