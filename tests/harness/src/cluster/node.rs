//! The node: containerd and kubelet in namespaces of their own, so that all pods end, and
//! every mount goes, with one process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::json;

use super::certificates::{KUBELET, NODE, kubeconfig};
use super::component::{Component, Programs};
use super::network;
use super::process::Processes;
use super::site::Site;
use crate::image::Image;

const INIT: &str = "node";
const INIT_SCRIPT: &str = include_str!("node_init.sh");
/// Pods that fit on the node.
const MAX_PODS: u32 = 250;

/// Starts the node's first process; does nothing where it runs.
pub(super) fn ensure_init(site: &Site, processes: &Processes) -> Result<()> {
    if processes.find(INIT).is_some() {
        return Ok(());
    }
    make_cgroup(&site.number.cgroup()).context("can't make the pods' control group")?;
    let ready = site.path("run/node.ready");
    if ready.exists() {
        fs::remove_file(&ready)?;
    }
    let mut command = network::entrance(processes)?;
    command
        .args(["unshare", "--mount", "--pid", "--fork", "--mount-proc"])
        .args(["--propagation", "private", "sh", "-c", INIT_SCRIPT])
        .arg("node-init")
        .arg(&site.folder)
        .arg(site.number.cgroup());
    let init = processes.start_through(INIT, command)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ready.exists() {
        ensure!(
            init.is_running() && Instant::now() < deadline,
            "the node does not start: {}",
            processes.log_tail(INIT)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends the node as a power cut does.
pub(super) fn crash(processes: &Processes) -> Result<()> {
    processes.end(INIT, Signal::KILL, Duration::from_secs(60))
}

/// The command that starts one of the node's components inside it.
pub(super) fn command(
    component: Component,
    site: &Site,
    programs: &Programs,
    processes: &Processes,
) -> Result<Command> {
    let init = processes.find(INIT).context("the node does not run")?;
    let arguments = match component {
        Component::Containerd => containerd(site, programs)?,
        Component::Kubelet => kubelet(site)?,
        _ => bail!("{} belongs to the control plane", component.name()),
    };
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={}", init.id()))
        .args(["--mount", "--pid", "--net", "--wd=/"])
        .arg(programs.path(component))
        .args(arguments);
    Ok(command)
}

/// containerd's socket, which programs outside may use, too.
pub(super) fn socket(site: &Site) -> std::path::PathBuf {
    site.path("containerd/containerd.sock")
}

fn containerd(site: &Site, programs: &Programs) -> Result<Vec<String>> {
    let networks = site.path("network");
    fs::create_dir_all(&networks)?;
    fs::create_dir_all(site.path("containerd"))?;
    write_json(&networks.join("10-pods.conflist"), &pod_network(site))?;
    let config = site.path("containerd/config.toml");
    fs::write(
        &config,
        format!(
            r#"version = 2
root = "{folder}/containerd/root"
state = "/run/containerd"
# The first would make a folder in /opt; the others look for what nobody has here.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# In a container without CAP_SYS_RESOURCE a score can't be lowered, and no pod would start.
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{networks}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
            folder = site.folder.display(),
            socket = socket(site).display(),
            pause = Image::PAUSE,
            plugins = programs.network_plugins.display(),
            networks = networks.display(),
            snapshotter = snapshotter(&site.folder)?,
        ),
    )?;
    Ok(vec![format!("--config={}", config.display())])
}

/// The overlay of a folder that is an overlay itself, as in a container, is refused by the
/// kernel: there, layers are copied.
fn snapshotter(folder: &Path) -> Result<&'static str> {
    const OVERLAY_MAGIC: u64 = 0x794c_7630;
    let kind = rustix::fs::statfs(folder)?.f_type;
    Ok(match u64::try_from(kind) {
        Ok(OVERLAY_MAGIC) => "native",
        _ => "overlayfs",
    })
}

/// The bridge is there already, with its address. `isGateway` would let the machine forward
/// packets and `ipMasq` needs iptables.
fn pod_network(site: &Site) -> serde_json::Value {
    let number = site.number;
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": false,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/pod-addresses",
                "ranges": [[{
                    "subnet": number.pod_network(),
                    "rangeStart": number.first_pod_address(),
                    "gateway": number.gateway(),
                }]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn kubelet(site: &Site) -> Result<Vec<String>> {
    fs::create_dir_all(site.path("kubelet"))?;
    // Without an answer each look-up takes 10 s, and without a server here containerd would
    // show pods the machine's own.
    let resolv_conf = site.path("kubelet/resolv.conf");
    fs::write(
        &resolv_conf,
        format!("nameserver {}\n", site.number.gateway()),
    )?;
    let config = site.path("kubelet/config.json");
    write_json(&config, &kubelet_config(site))?;
    Ok(vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig(site, KUBELET).display()),
        format!("--root-dir={}", site.path("kubelet/root").display()),
        format!("--cert-dir={}", site.path("kubelet/pki").display()),
        format!("--hostname-override={NODE}"),
        format!("--node-ip={}", site.number.node_address()),
    ])
}

fn kubelet_config(site: &Site) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", socket(site).display()),
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", site.number.cgroup()),
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": false,
        "address": site.number.node_address(),
        "readOnlyPort": 0,
        "tlsCertFile": site.pki("kubelet-server.crt"),
        "tlsPrivateKeyFile": site.pki("kubelet-server.key"),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": site.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "resolvConf": site.path("kubelet/resolv.conf"),
        "clusterDNS": [site.number.gateway()],
        "clusterDomain": "cluster.local",
        "makeIPTablesUtilChains": false,
        "podLogsDir": site.path("logs/pods"),
        // It would make a folder below /usr.
        "volumePluginDir": site.path("volume-plugins"),
        "maxPods": MAX_PODS,
        "serializeImagePulls": false,
        // The disk is somebody else's, too: its being full is no reason to evict, and images
        // can't be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "8760h",
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        // So that a dead kubelet is noticed in seconds; see the controller manager.
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 10,
        "shutdownGracePeriod": "0s",
    })
}

/// Makes the group under which kubelet makes those of the pods, in every hierarchy of
/// version 1 or in the one of version 2.
fn make_cgroup(name: &str) -> Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    if top.join("cgroup.controllers").exists() {
        fs::create_dir_all(top.join(name))?;
        delegate(top)?;
        return delegate(&top.join(name));
    }
    for entry in fs::read_dir(top)? {
        let hierarchy = entry?.path();
        let is_version_1 = hierarchy.join("cgroup.procs").exists()
            && !hierarchy.join("cgroup.controllers").exists();
        if !is_version_1 {
            continue;
        }
        let group = hierarchy.join(name);
        fs::create_dir_all(&group)?;
        // These two are empty in a new group, which then takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.join(file).exists() {
                fs::write(group.join(file), fs::read(hierarchy.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// Lets the groups below one of version 2 have all its controllers.
fn delegate(group: &Path) -> Result<()> {
    let controllers = fs::read_to_string(group.join("cgroup.controllers"))?;
    for controller in controllers.split_whitespace() {
        let file = group.join("cgroup.subtree_control");
        fs::write(&file, format!("+{controller}"))
            .with_context(|| format!("can't write +{controller} to {}", file.display()))?;
    }
    Ok(())
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    fs::write(path, value.to_string()).with_context(|| format!("can't write {}", path.display()))
}
