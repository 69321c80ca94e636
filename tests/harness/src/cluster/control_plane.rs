//! etcd, API server, controller manager and scheduler: how they are started. Keys and
//! certificates, and whatever else they read, are made beforehand.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::audit;
use super::certificates::{CONTROLLER_MANAGER, SCHEDULER, kubeconfig};
use super::component::{Component, Programs};
use super::number::Port;
use super::site::{Site, Size};

/// Requests a second that controllers and scheduler may make. The defaults, 20 and 50, are
/// for clusters with other users; here they would be what a test waits for.
const REQUESTS_PER_SECOND: u32 = 500;

/// The command that starts a component of the control plane.
pub(super) fn command(component: Component, site: &Site, programs: &Programs) -> Result<Command> {
    let arguments = match component {
        Component::Etcd => etcd(site),
        Component::ApiServer => api_server(site)?,
        Component::ControllerManager => controller_manager(site),
        Component::Scheduler => scheduler(site)?,
        Component::Containerd | Component::Kubelet => {
            anyhow::bail!("{} belongs to the node", component.name())
        }
    };
    let mut command = Command::new(programs.path(component));
    command.args(arguments);
    Ok(command)
}

fn etcd(site: &Site) -> Vec<String> {
    let client = format!("http://{}", site.number.loopback(Port::EtcdClient));
    let peer = format!("http://{}", site.number.loopback(Port::EtcdPeer));
    vec![
        "--name=etcd".to_owned(),
        format!("--data-dir={}", site.path("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=etcd={peer}"),
        // A test that survives the machine needs nothing of its cluster.
        "--unsafe-no-fsync".to_owned(),
        // 10,000 pods with their history pass the default of 2 GiB.
        format!("--quota-backend-bytes={}", 8_u64 << 30),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server(site: &Site) -> Result<Vec<String>> {
    let pki = |name: &str| site.pki(name).display().to_string();
    let address = site.api_address();
    // Nobody dials it where there is no node, but a loopback address is refused.
    let advertised = match site.size {
        Size::ApiServer | Size::ControlPlane => "198.51.100.1".to_owned(),
        Size::Node => address.ip().to_string(),
    };
    let mut arguments = vec![
        format!(
            "--etcd-servers=http://{}",
            site.number.loopback(Port::EtcdClient)
        ),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--advertise-address={advertised}"),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", pki("api-server.crt")),
        format!("--tls-private-key-file={}", pki("api-server.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki("tokens.pub")),
        format!("--service-account-signing-key-file={}", pki("tokens.key")),
        format!(
            "--service-cluster-ip-range={}",
            site.number.service_network()
        ),
        "--profiling=false".to_owned(),
    ];
    if site.size == Size::ApiServer {
        arguments.push("--authorization-mode=RBAC".to_owned());
        // No controller makes the service accounts that it would ask for.
        arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
        return Ok(arguments);
    }
    arguments.extend([
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
    ]);
    arguments.extend(audit::arguments(site)?);
    Ok(arguments)
}

fn controller_manager(site: &Site) -> Vec<String> {
    let config = kubeconfig(site, CONTROLLER_MANAGER).display().to_string();
    let mut arguments = vec![
        format!("--kubeconfig={config}"),
        format!("--root-ca-file={}", site.pki("ca.crt").display()),
        format!(
            "--service-account-private-key-file={}",
            site.pki("tokens.key").display()
        ),
        "--use-service-account-credentials".to_owned(),
        // By default a dead node is noticed after 50 s.
        "--node-monitor-grace-period=20s".to_owned(),
        "--node-monitor-period=2s".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--kube-api-qps={REQUESTS_PER_SECOND}"),
        format!("--kube-api-burst={}", 2 * REQUESTS_PER_SECOND),
        // It would make a folder below /usr.
        format!(
            "--flex-volume-plugin-dir={}",
            site.path("volume-plugins").display()
        ),
    ];
    arguments.extend(serving(site, "controller-manager", Port::ControllerManager));
    arguments.extend(delegating(&config));
    arguments
}

fn scheduler(site: &Site) -> Result<Vec<String>> {
    let kubeconfig = kubeconfig(site, SCHEDULER).display().to_string();
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "clientConnection": {
            "kubeconfig": kubeconfig,
            "qps": REQUESTS_PER_SECOND,
            "burst": 2 * REQUESTS_PER_SECOND,
        },
    });
    let path = site.path("scheduler.json");
    fs::write(&path, config.to_string())
        .with_context(|| format!("can't write {}", path.display()))?;
    let mut arguments = vec![format!("--config={}", path.display())];
    arguments.extend(serving(site, "scheduler", Port::Scheduler));
    arguments.extend(delegating(&kubeconfig));
    Ok(arguments)
}

/// Where a component serves its health and metrics.
fn serving(site: &Site, name: &str, port: Port) -> Vec<String> {
    let address = site.number.loopback(port);
    vec![
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--cert-dir={}", site.path(format!("run/{name}")).display()),
        "--profiling=false".to_owned(),
    ]
}

/// Who may ask a component is for the API server to say.
fn delegating(kubeconfig: &str) -> [String; 2] {
    [
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
    ]
}
