//! Real Kubernetes clusters on this machine, for the length of a test or, by hand, for longer.
//!
//! [`Cluster::control_plane`] is API server, controllers and scheduler: Jobs get pods that
//! run nowhere, or only in [`Kwok`]'s words. It needs no root. [`Cluster::node`] has a node,
//! too, on which containers run; it needs root, containerd and runc, and brings the rest:
//! network, name server, images without a registry.
//!
//! Several clusters live side by side. All of one ends when its [`Cluster`] is dropped, or
//! when the process that owns it ends in whatever way; what even then could stay, the next
//! start removes.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use rustix::process::Signal;

use crate::image::Image;
use crate::tool::{find_tool, skip};

mod access;
mod audit;
mod certificates;
mod component;
mod containers;
mod control_plane;
mod existing;
mod keeper;
mod kueue;
mod kwok;
mod name_server;
mod network;
mod node;
mod number;
mod own;
mod people;
mod process;
mod report;
mod site;

pub use audit::ApiRequest;
pub use component::Component;
pub use kueue::MANAGED as MANAGED_BY_KUEUE;
pub use kwok::Kwok;
pub use name_server::{Names, serve as serve_names};
pub use people::{PeoplesCluster, Up};
pub use report::FailureReport;

use component::Programs;
use existing::Existing;
use own::OwnCluster;
use site::Size;

/// A cluster that tests may use.
#[derive(Debug)]
pub struct Cluster(Kind);

#[derive(Debug)]
enum Kind {
    Own(Box<OwnCluster>),
    Existing(Existing),
}

impl Cluster {
    /// etcd and the API server: what it says about resources, and nothing else.
    ///
    /// None, and a line that says `SKIPPED`, where a program is not installed; so do the
    /// other functions that start clusters.
    ///
    /// # Panics
    /// If it does not start, or with `SIDECARJOB_STRICT=1` if a program is not installed.
    pub fn api_server() -> Option<Self> {
        Self::start(Size::ApiServer)
    }

    /// API server, controllers and scheduler, without a node. Needs no root.
    ///
    /// # Panics
    /// As [`Self::api_server`].
    pub fn control_plane() -> Option<Self> {
        Self::start(Size::ControlPlane)
    }

    /// A control plane and a node that runs pods. Needs root.
    ///
    /// # Panics
    /// As [`Self::api_server`].
    pub fn node() -> Option<Self> {
        Self::start(Size::Node)
    }

    /// The one cluster that the end-to-end tests of this process share: a node of ours, or
    /// the cluster that `KUBECONFIG` names if `SIDECARJOB_E2E_EXISTING=1`. It ends with the
    /// process.
    ///
    /// # Panics
    /// As [`Self::api_server`].
    pub fn for_tests() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<Option<Cluster>, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| match Existing::from_environment() {
            Ok(Some(existing)) => Ok(Some(Self(Kind::Existing(existing)))),
            Ok(None) => Self::try_start(Size::Node).map_err(|error| format!("{error:#}")),
            Err(error) => Err(format!("{error:#}")),
        });
        match shared {
            Ok(Some(cluster)) => Some(cluster),
            Ok(None) => {
                // Each test says for itself why it is skipped.
                Programs::find(Size::Node);
                None
            }
            Err(error) => panic!("no cluster: {error}"),
        }
    }

    fn start(size: Size) -> Option<Self> {
        match Self::try_start(size) {
            Ok(cluster) => cluster,
            Err(error) => panic!("no cluster: {error:#}"),
        }
    }

    fn try_start(size: Size) -> Result<Option<Self>> {
        let Some(programs) = Programs::find(size) else {
            return Ok(None);
        };
        let own = OwnCluster::begin(size, programs)?;
        Ok(Some(Self(Kind::Own(Box::new(own)))))
    }

    /// Whether it was started here, so that its parts can be stopped; tests that do so skip
    /// themselves where it was not.
    pub fn is_own(&self) -> bool {
        matches!(self.0, Kind::Own(_))
    }

    fn own(&self) -> Result<&OwnCluster> {
        match &self.0 {
            Kind::Own(own) => Ok(own),
            Kind::Existing(existing) => bail!(
                "the cluster of {} is somebody else's",
                existing.kubeconfig.display()
            ),
        }
    }

    /// A file for `KUBECONFIG`, with the rights of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.0 {
            Kind::Own(own) => own.kubeconfig(),
            Kind::Existing(existing) => existing.kubeconfig.clone(),
        }
    }

    /// A client with the rights of an administrator. It belongs to the runtime on which it
    /// was made.
    ///
    /// # Errors
    /// If the kubeconfig is not as it should be.
    pub async fn client(&self) -> Result<Client> {
        access::client(&self.kubeconfig()).await
    }

    /// A file for `KUBECONFIG` with the rights of a service account, by a token that is good
    /// for some hours.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let folder = match &self.0 {
            Kind::Own(own) => &own.site.folder,
            Kind::Existing(existing) => existing.folder.path(),
        };
        access::service_account_kubeconfig(&self.kubeconfig(), folder, namespace, name).await
    }

    /// A client with the rights of a service account.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn service_account_client(&self, namespace: &str, name: &str) -> Result<Client> {
        access::client(&self.service_account_kubeconfig(namespace, name).await?).await
    }

    /// This machine's address for servers that pods are to reach. In pods of a cluster of
    /// ours its name is `gateway`; where there is no node, it is loopback.
    ///
    /// # Errors
    /// For a cluster that is not ours, if `SIDECARJOB_E2E_GATEWAY` does not say.
    pub fn gateway(&self) -> Result<IpAddr> {
        match &self.0 {
            Kind::Own(own) => Ok(own.site.gateway().into()),
            Kind::Existing(existing) => existing.gateway(),
        }
    }

    /// Makes an image known to the node.
    ///
    /// # Errors
    /// If the node does not take it; for a cluster that is not ours, if
    /// `SIDECARJOB_E2E_IMPORT` does not say how.
    pub fn import_image(&self, image: &Image) -> Result<()> {
        match &self.0 {
            Kind::Own(own) => own.import(image),
            Kind::Existing(existing) => existing.import(image),
        }
    }

    /// Ends the first container of a pod as `kill -9` from outside does.
    ///
    /// # Errors
    /// If there is no such container, or the cluster is not ours.
    pub fn kill_container(&self, namespace: &str, pod: &str) -> Result<()> {
        let field = "jsonpath={.status.containerStatuses[0].containerID}";
        let id = self.kubectl(&[
            "get",
            "pod",
            pod,
            "--namespace",
            namespace,
            "--output",
            field,
        ])?;
        self.own()?.kill_container(id.trim())
    }

    /// Whether a component of a cluster of ours runs.
    pub fn is_running(&self, component: Component) -> bool {
        self.own().is_ok_and(|own| own.is_running(component))
    }

    /// Ends a component as `kill -9` does, and waits for its end.
    ///
    /// # Errors
    /// If it does not end, or the cluster is not ours.
    pub fn kill(&self, component: Component) -> Result<()> {
        self.own()?.end(component, Signal::KILL)
    }

    /// Asks a component to end, and waits for its end.
    ///
    /// # Errors
    /// If it does not end, or the cluster is not ours.
    pub fn stop(&self, component: Component) -> Result<()> {
        self.own()?.end(component, Signal::TERM)
    }

    /// Starts a component that was ended and waits until it is ready, a kubelet until its
    /// node is.
    ///
    /// # Errors
    /// If it does not get ready, or the cluster is not ours.
    pub fn start_component(&self, component: Component) -> Result<()> {
        self.own()?.start(component)
    }

    /// Ends everything on the node at once, as a power cut does.
    ///
    /// # Errors
    /// If it does not end, or the cluster is not ours.
    pub fn crash_node(&self) -> Result<()> {
        self.own()?.crash_node()
    }

    /// Starts the node after [`Self::crash_node`] and waits until it is ready.
    ///
    /// # Errors
    /// If it does not get ready, or the cluster is not ours.
    pub fn start_node(&self) -> Result<()> {
        self.own()?.start_node()
    }

    /// Pretends nodes and pods on a control plane of ours, from now on as `kwok` says. False,
    /// and a line that says `SKIPPED`, where kwok is not installed.
    ///
    /// # Errors
    /// If kwok does not start, or the cluster is not ours.
    ///
    /// # Panics
    /// With `SIDECARJOB_STRICT=1` if kwok is not installed.
    pub fn pretend_nodes(&self, kwok: &Kwok) -> Result<bool> {
        let Some(program) = find_tool("kwok") else {
            return Ok(false);
        };
        self.own()?.start_kwok(&program, kwok)?;
        Ok(true)
    }

    /// Kueue in a cluster of ours, until the result is dropped. None, and a line that says
    /// `SKIPPED`, where Kueue is not installed or the cluster is somebody else's.
    ///
    /// # Errors
    /// If it does not start.
    ///
    /// # Panics
    /// With `SIDECARJOB_STRICT=1` if Kueue is not installed.
    pub fn start_kueue(&self) -> Result<Option<Kueue<'_>>> {
        let Kind::Own(own) = &self.0 else {
            skip("this needs a cluster of the tests' own");
            return Ok(None);
        };
        let Some(program) = find_tool("kueue") else {
            return Ok(None);
        };
        let definitions = kueue::definitions_to_apply();
        self.kubectl(&["apply", "--server-side", "-f", &definitions])?;
        let established = ["wait", "--for=condition=Established", "--timeout=60s"];
        self.kubectl(&[&established[..], &["-f", &definitions]].concat())?;
        // The garbage collector looks for new kinds every half a minute. Until then a Job that is
        // deleted goes before its Workload, which Kueue then takes for that of the next Job.
        own.end(Component::ControllerManager, Signal::TERM)?;
        own.start(Component::ControllerManager)?;
        own.start_kueue(&program)?;
        let webhooks = own.site.path("kueue-webhooks.json");
        std::fs::write(&webhooks, kueue::webhooks(&own.site)?.to_string())?;
        let kueue = Kueue {
            cluster: self,
            webhooks: webhooks.display().to_string(),
        };
        self.kubectl(&["apply", "--server-side", "-f", &kueue.webhooks])?;
        Ok(Some(kueue))
    }

    /// What was asked of the API server since the cluster was started, except by the
    /// components of Kubernetes.
    ///
    /// # Errors
    /// If the log can't be read, or the cluster is not ours.
    pub fn requests(&self) -> Result<Vec<ApiRequest>> {
        audit::requests(&self.own()?.site)
    }

    /// Runs kubectl as the administrator and returns what it says.
    ///
    /// # Errors
    /// If it fails, with what it complains of.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&self.kubeconfig(), arguments)
    }

    /// Prints what the cluster has to say if the test fails before the result is dropped.
    #[must_use]
    pub fn report_on_failure(&self) -> FailureReport<'_> {
        FailureReport { cluster: self }
    }

    /// The process id of a component of a cluster of ours.
    pub fn process_id(&self, component: Component) -> Option<u32> {
        let own = self.own().ok()?;
        own.processes.find(component.name()).map(|found| found.id())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Kind::Own(own) = &mut self.0 else {
            return;
        };
        if let Err(error) = own.finish() {
            eprintln!("{error:#}");
        }
    }
}

/// A Kueue that runs; it ends when dropped, and what it was asked to look after stays as it is.
#[derive(Debug)]
pub struct Kueue<'a> {
    cluster: &'a Cluster,
    webhooks: String,
}

impl Drop for Kueue<'_> {
    fn drop(&mut self) {
        // Nobody would answer them any more.
        let webhooks = self.cluster.kubectl(&["delete", "-f", &self.webhooks]);
        let stopped = self.cluster.own().and_then(OwnCluster::stop_kueue);
        for error in [webhooks.err(), stopped.err()].into_iter().flatten() {
            eprintln!("{error:#}");
        }
    }
}

fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let program = find_tool("kubectl").context("kubectl is not there")?;
    let output = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .output()
        .context("can't run kubectl")?;
    ensure!(
        output.status.success(),
        "kubectl {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
