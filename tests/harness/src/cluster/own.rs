//! A cluster of ours: brought up, its parts stopped and started, and ended.

use std::future::Future;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Client;
use kube::api::Api;
use rustix::process::Signal;

use super::certificates::{self, ADMIN, NODE, kubeconfig};
use super::component::{Component, Programs};
use super::keeper::Keeper;
use super::kueue;
use super::kwok::{self, Kwok};
use super::name_server::{NameServer, Names};
use super::number::Port;
use super::process::{Process, Processes};
use super::site::{Site, Size};
use super::{access, containers, control_plane, network, node};
use crate::image::Image;

const POLL: Duration = Duration::from_millis(50);
/// On a busy machine the parts take their time.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Name of kwok's records and logs.
const KWOK: &str = "kwok";
/// Name of the records and logs of a name server that is a process.
pub(super) const NAME_SERVER: &str = "name-server";

/// What ends with this program, and what does not.
#[derive(Debug)]
enum Owner {
    /// The cluster ends with this program, however that ends.
    ThisProgram {
        keeper: Keeper,
        /// There is one where there is a node.
        name_server: Option<NameServer>,
    },
    /// It runs on until somebody ends it. The command serves names.
    Machine { name_server: PathBuf },
}

#[derive(Debug)]
pub(super) struct OwnCluster {
    pub site: Site,
    pub processes: Processes,
    programs: Programs,
    owner: Owner,
}

impl OwnCluster {
    /// Starts a cluster that ends with this program.
    pub fn begin(size: Size, programs: Programs) -> Result<Self> {
        let (site, lock) = Site::claim(size)?;
        let keeper = Keeper::start(&site, lock)?;
        let mut cluster = Self {
            processes: Processes::in_folder(&site.folder)?,
            site,
            programs,
            owner: Owner::ThisProgram {
                keeper,
                name_server: None,
            },
        };
        cluster.bring_up()?;
        Ok(cluster)
    }

    /// Starts what is missing of a cluster that runs on. `name_server` is a program that
    /// serves names when it is called with the word `name-server`.
    pub fn begin_for_machine(site: Site, programs: Programs, name_server: PathBuf) -> Result<Self> {
        site.create()?;
        let mut cluster = Self {
            processes: Processes::in_folder(&site.folder)?,
            site,
            programs,
            owner: Owner::Machine { name_server },
        };
        cluster.bring_up()?;
        Ok(cluster)
    }

    /// Ends a cluster of this program and waits until nothing is left of it.
    pub fn finish(&mut self) -> Result<()> {
        let Owner::ThisProgram {
            keeper,
            name_server,
        } = &mut self.owner
        else {
            return Ok(());
        };
        drop(name_server.take());
        let result = keeper.finish();
        self.processes.notice_ended();
        result
    }

    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig(&self.site, ADMIN)
    }

    fn bring_up(&mut self) -> Result<()> {
        certificates::issue_all(&self.site)?;
        let has_node = self.site.size == Size::Node;
        if has_node {
            network::ensure(&self.site, &self.processes)?;
            self.serve_names()?;
        }
        self.spawn(Component::Etcd)?;
        self.spawn(Component::ApiServer)?;
        if has_node {
            // While the API server is on its way.
            self.start_containerd()?;
        }
        self.await_readiness(Component::ApiServer)?;
        if self.site.size == Size::ApiServer {
            return Ok(());
        }
        // Before the API server is ready, these would end because they may do nothing yet.
        self.spawn(Component::ControllerManager)?;
        self.spawn(Component::Scheduler)?;
        if has_node {
            self.start(Component::Kubelet)?;
        }
        self.await_readiness(Component::ControllerManager)?;
        self.await_readiness(Component::Scheduler)
    }

    fn serve_names(&mut self) -> Result<()> {
        let number = self.site.number;
        match &mut self.owner {
            Owner::ThisProgram { name_server, .. } => {
                let names = Names::new(number.gateway(), number.service_address());
                *name_server = Some(NameServer::start(number.gateway(), names)?);
            }
            Owner::Machine { name_server } => {
                if self.processes.find(NAME_SERVER).is_none() {
                    let mut command = Command::new(name_server);
                    command
                        .arg(NAME_SERVER)
                        .arg(number.gateway().to_string())
                        .arg(number.service_address().to_string());
                    self.processes.start(NAME_SERVER, command)?;
                }
            }
        }
        Ok(())
    }

    fn start_containerd(&self) -> Result<()> {
        node::ensure_init(&self.site, &self.processes)?;
        self.start(Component::Containerd)?;
        self.import(&Image::pause()?)
    }

    /// Brings the node back after a crash.
    pub fn start_node(&self) -> Result<()> {
        self.start_containerd()?;
        self.start(Component::Kubelet)
    }

    /// Ends everything on the node at once, as a power cut does.
    pub fn crash_node(&self) -> Result<()> {
        node::crash(&self.processes)
    }

    pub fn import(&self, image: &Image) -> Result<()> {
        containers::import(&node::socket(&self.site), image)
    }

    pub fn kill_container(&self, id: &str) -> Result<()> {
        containers::kill(&node::socket(&self.site), id)
    }

    pub fn is_running(&self, component: Component) -> bool {
        self.processes.find(component.name()).is_some()
    }

    /// Starts a component and waits until it is ready; does nothing if it runs.
    pub fn start(&self, component: Component) -> Result<()> {
        if component == Component::Kubelet {
            return self.start_kubelet();
        }
        self.spawn(component)?;
        self.await_readiness(component)
    }

    pub fn end(&self, component: Component, signal: Signal) -> Result<()> {
        self.processes.end(component.name(), signal, STOP_LIMIT)
    }

    /// containerd answers before its Kubernetes side does, and kubelet asks only once: it is
    /// started until it stays.
    fn start_kubelet(&self) -> Result<()> {
        const TRIES: usize = 8;
        if self.is_running(Component::Kubelet) {
            return Ok(());
        }
        for _ in 0..TRIES {
            let start = SystemTime::now();
            let kubelet = self.spawn(Component::Kubelet)?;
            if self.await_node(kubelet, start)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        bail!(
            "kubelet does not stay up: {}",
            self.processes.log_tail(Component::Kubelet.name())
        )
    }

    /// Waits for the first sign of life that is newer than `start`; false if kubelet ends.
    fn await_node(&self, kubelet: Process, start: SystemTime) -> Result<bool> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let kubeconfig = self.kubeconfig();
            let is_ready = on_own_runtime(async move {
                let client = access::client(&kubeconfig).await?;
                is_node_ready(client, start).await
            });
            if is_ready.unwrap_or(false) {
                return Ok(true);
            }
            if !kubelet.is_running() {
                return Ok(false);
            }
            ensure!(
                Instant::now() < deadline,
                "the node is not ready after {START_LIMIT:?}: {}",
                self.processes.log_tail(Component::Kubelet.name())
            );
            std::thread::sleep(POLL);
        }
    }

    fn spawn(&self, component: Component) -> Result<Process> {
        let name = component.name();
        if let Some(process) = self.processes.find(name) {
            return Ok(process);
        }
        match component {
            Component::Containerd | Component::Kubelet => {
                let command =
                    node::command(component, &self.site, &self.programs, &self.processes)?;
                self.processes.start_through(name, command)
            }
            _ => {
                let command = control_plane::command(component, &self.site, &self.programs)?;
                self.processes.start(name, command)
            }
        }
    }

    /// Waits until a component answers; kubelet is ready when its node is.
    fn await_readiness(&self, component: Component) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.is_ready(component) {
            let name = component.name();
            ensure!(
                self.processes.find(name).is_some(),
                "{name} ended: {}",
                self.processes.log_tail(name)
            );
            ensure!(
                Instant::now() < deadline,
                "{name} is not ready after {START_LIMIT:?}: {}",
                self.processes.log_tail(name)
            );
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn is_ready(&self, component: Component) -> bool {
        let number = self.site.number;
        match component {
            Component::Etcd => accepts(number.loopback(Port::EtcdClient)),
            Component::ApiServer => {
                accepts(self.site.api_address()) && self.ask(is_api_ready).unwrap_or(false)
            }
            // Pods need the account that it makes.
            Component::ControllerManager => {
                accepts(number.loopback(Port::ControllerManager))
                    && self.ask(has_default_account).unwrap_or(false)
            }
            Component::Scheduler => accepts(number.loopback(Port::Scheduler)),
            Component::Containerd => containers::is_served(&node::socket(&self.site)),
            Component::Kubelet => self.is_running(Component::Kubelet),
        }
    }

    /// Pretends nodes and pods from now on.
    pub fn start_kwok(&self, program: &std::path::Path, kwok: &Kwok) -> Result<()> {
        self.processes.end(KWOK, Signal::KILL, STOP_LIMIT)?;
        let kubeconfig = self.kubeconfig();
        let nodes = kwok.clone();
        on_own_runtime(async move {
            kwok::create_nodes(access::client(&kubeconfig).await?, &nodes).await
        })?;
        let command = kwok::command(program, &self.site, kwok)?;
        self.processes.start(KWOK, command)?;
        let deadline = Instant::now() + START_LIMIT;
        while !self.ask(are_all_nodes_ready)? {
            ensure!(
                self.processes.find(KWOK).is_some() && Instant::now() < deadline,
                "kwok does not make its nodes ready: {}",
                self.processes.log_tail(KWOK)
            );
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Starts Kueue's manager and waits until it answers.
    pub fn start_kueue(&self, program: &std::path::Path) -> Result<()> {
        self.processes.end(kueue::NAME, Signal::KILL, STOP_LIMIT)?;
        let command = kueue::command(program, &self.site)?;
        self.processes.start(kueue::NAME, command)?;
        let deadline = Instant::now() + START_LIMIT;
        while !accepts(self.site.number.loopback(Port::Webhooks)) {
            ensure!(
                self.processes.find(kueue::NAME).is_some() && Instant::now() < deadline,
                "Kueue does not get ready: {}",
                self.processes.log_tail(kueue::NAME)
            );
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    pub fn stop_kueue(&self) -> Result<()> {
        self.processes.end(kueue::NAME, Signal::KILL, STOP_LIMIT)
    }

    /// Asks the API server something as the administrator.
    fn ask<Q, F>(&self, question: Q) -> Result<bool>
    where
        Q: FnOnce(Client) -> F + Send,
        F: Future<Output = Result<bool>> + Send,
    {
        let kubeconfig = self.kubeconfig();
        on_own_runtime(async move { question(access::client(&kubeconfig).await?).await })
    }
}

async fn is_api_ready(client: Client) -> Result<bool> {
    let request = http::Request::get("/readyz").body(Vec::new())?;
    Ok(client.request_text(request).await? == "ok")
}

async fn has_default_account(client: Client) -> Result<bool> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    Ok(accounts.get_opt("default").await?.is_some())
}

async fn is_node_ready(client: Client, since: SystemTime) -> Result<bool> {
    let nodes: Api<Node> = Api::all(client);
    // The API server keeps whole seconds.
    let since = since.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    Ok(nodes.get_opt(NODE).await?.is_some_and(|node| {
        ready_condition(&node).is_some_and(|condition| {
            let heartbeat = condition.last_heartbeat_time.as_ref();
            heartbeat.is_some_and(|time| {
                u64::try_from(time.0.as_second()).is_ok_and(|second| second >= since)
            })
        })
    }))
}

async fn are_all_nodes_ready(client: Client) -> Result<bool> {
    let nodes: Api<Node> = Api::all(client);
    let list = nodes.list(&kube::api::ListParams::default()).await?;
    // A taint stays until the controller manager has seen the condition.
    let is_open = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        taints.is_none_or(Vec::is_empty)
    };
    Ok(list
        .iter()
        .all(|node| ready_condition(node).is_some() && is_open(node)))
}

fn ready_condition(node: &Node) -> Option<&k8s_openapi::api::core::v1::NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// Runs a future to its end, whether or not the caller runs on a runtime.
fn on_own_runtime<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("no runtime")?
                .block_on(future)
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
