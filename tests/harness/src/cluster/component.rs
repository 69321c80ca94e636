//! The programs that a cluster is made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::site::Size;
use crate::tool::{find_program, find_tool, skip};

/// A program that can be stopped and started by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Keeps what the API server knows.
    Etcd,
    /// The Kubernetes API.
    ApiServer,
    /// Makes a Job's pods, among much else.
    ControllerManager,
    /// Finds a node for a pod.
    Scheduler,
    /// Runs containers.
    Containerd,
    /// Runs the node's pods. They run on while it does not.
    Kubelet,
}

impl Component {
    /// Name of its records and logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "api-server",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        }
    }

    /// What a cluster of some size consists of, in the order in which they start.
    pub(super) fn all(size: Size) -> &'static [Self] {
        use Component::{ApiServer, Containerd, ControllerManager, Etcd, Kubelet, Scheduler};
        match size {
            Size::ApiServer => &[Etcd, ApiServer],
            Size::ControlPlane => &[Etcd, ApiServer, ControllerManager, Scheduler],
            Size::Node => &[
                Etcd,
                ApiServer,
                ControllerManager,
                Scheduler,
                Containerd,
                Kubelet,
            ],
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    components: BTreeMap<Component, PathBuf>,
    /// The folder of the network plugins; empty without a node.
    pub network_plugins: PathBuf,
}

impl Programs {
    /// Finds all that a cluster of some size needs; none, and a line that says `SKIPPED`,
    /// if one is not there.
    ///
    /// # Panics
    /// With `SIDECARJOB_STRICT=1` if one is not there.
    pub fn find(size: Size) -> Option<Self> {
        let mut components = BTreeMap::new();
        for &component in Component::all(size) {
            let program = match component {
                Component::Etcd => find_tool("etcd"),
                Component::ApiServer => find_tool("kube-apiserver"),
                Component::ControllerManager => find_tool("kube-controller-manager"),
                Component::Scheduler => find_tool("kube-scheduler"),
                Component::Kubelet => find_tool("kubelet"),
                Component::Containerd => find_program("containerd", "containerd"),
            };
            components.insert(component, program?);
        }
        let network_plugins = match size {
            Size::ApiServer | Size::ControlPlane => PathBuf::new(),
            Size::Node => find_node_programs()?,
        };
        Some(Self {
            components,
            network_plugins,
        })
    }

    pub fn path(&self, component: Component) -> &Path {
        &self.components[&component]
    }
}

/// What a node needs beside its components; returns the folder of the network plugins.
fn find_node_programs() -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        skip("a node needs root, for its namespaces, network and control groups");
        return None;
    }
    for (program, package) in [
        ("runc", "runc"),
        ("ctr", "containerd"),
        ("ip", "iproute2"),
        ("nsenter", "util-linux"),
        ("unshare", "util-linux"),
        ("mount", "mount"),
    ] {
        find_program(program, package)?;
    }
    let folders = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
    let found = folders
        .iter()
        .map(Path::new)
        .find(|folder| folder.join("bridge").is_file() && folder.join("host-local").is_file());
    if found.is_none() {
        skip("no network plugins are there; install containernetworking-plugins");
    }
    found.map(Path::to_owned)
}
