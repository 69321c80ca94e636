//! Puts the parts together and runs them until the process is told to end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use crds::SidecarJob;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Config, Resource};
use rules::build::labels;
use storage::state::writer::ttl_from_environment;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinSet;

use crate::account::own_service_account;
use crate::apply::Applier;
use crate::arguments::Arguments;
use crate::controller::Controller;
use crate::definition::wait_for_definition;
use crate::events::Events;
use crate::identity::{Identities, Rights};
use crate::inquiry::Inquiry;
use crate::intake::{Intake, JobIntake, PodIntake, SidecarJobIntake};
use crate::leader::Election;
use crate::memory::Memory;
use crate::metrics::{Metrics, Scrape};
use crate::namespaces::Namespaces;
use crate::observe::{Caches, Observer};
use crate::queue::Queue;
use crate::runner::{Pace, Runners};
use crate::server::{Probe, serve};
use crate::watch::{ObjectKey, Selection, WatchHealth, WorkerPod, watch};

/// Pods that have ended well are no longer told of: thousands of them lie about in a long run.
const OTHER_PODS: &str = "status.phase!=Succeeded";

/// Between two looks whether the watches have listed everything.
const SYNC_INTERVAL: Duration = Duration::from_millis(50);

/// All parts.
struct Parts {
    client: Client,
    /// The namespaces to work in; `[None]`: all.
    namespaces: Vec<Option<String>>,
    intake: Intake,
    probe: Arc<Probe>,
    controller: Arc<Controller>,
    woken: mpsc::UnboundedReceiver<String>,
    election: Election,
    watches: Vec<Arc<WatchHealth>>,
}

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
/// If it can't begin, or is the leader no more.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("can't listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't listen for SIGINT")?;
    let Parts {
        client,
        namespaces,
        intake,
        probe,
        controller,
        mut woken,
        mut election,
        watches,
    } = put_together(&arguments).await?;
    let runners = Arc::clone(&intake.runners);
    let (stop, stopped) = channel::channel(false);
    let mut background = JoinSet::new();
    background.spawn({
        let (address, probe) = (arguments.listen, Arc::clone(&probe));
        async move {
            let served = serve(address, probe).await;
            served.with_context(|| format!("can't listen at {address}"))
        }
    });
    let concurrency = usize::try_from(arguments.concurrency).unwrap_or(1);
    let work = async {
        wait_for_definition(&client).await?;
        probe.note_definition();
        let mut watching = JoinSet::new();
        for (index, namespace) in namespaces.iter().enumerate() {
            let health = &watches[index * 3..index * 3 + 3];
            begin_watches(
                &mut watching,
                &client,
                namespace.as_deref(),
                &intake,
                health,
            );
        }
        election.win().await;
        tracing::info!("this replica is the leader");
        while !watches.iter().all(|watch| watch.is_synced()) {
            if !election.leadership().is_leader() {
                bail!("the watches were not listed before the lease ran out");
            }
            tokio::time::sleep(SYNC_INTERVAL).await;
        }
        let looking = tokio::spawn(Arc::clone(&controller).run(concurrency, stopped));
        let waking = async {
            while let Some(uid) = woken.recv().await {
                intake.wake(&uid);
            }
            std::future::pending().await
        };
        tokio::select! {
            lost = election.keep() => Err(lost.into()),
            ended = looking => match ended {
                Ok(()) => bail!("the controller ended by itself"),
                Err(error) => Err(error).context("the controller broke"),
            },
            ended = watching.join_next() => bail!("a watch ended by itself: {ended:?}"),
            () = waking => Ok(()),
        }
    };
    tokio::select! {
        result = work => result?,
        ended = background.join_next() => match ended {
            Some(Ok(result)) => result?,
            Some(Err(error)) => return Err(error).context("the web server broke"),
            None => bail!("the web server ended"),
        },
        _ = terminate.recv() => tracing::info!("told to end (SIGTERM)"),
        _ = interrupt.recv() => tracing::info!("told to end (SIGINT)"),
    }
    // Nobody listens if this replica stood by.
    let _ = stop.send(true);
    runners.shut_down().await;
    election.release().await;
    Ok(())
}

async fn put_together(arguments: &Arguments) -> anyhow::Result<Parts> {
    let config = Config::infer().await.context("there is no cluster")?;
    let lease_namespace = arguments.lease_namespace.clone();
    let lease_namespace = lease_namespace.unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).context("the cluster's address can't be used")?;
    let replica = arguments.replica.clone().unwrap_or_else(host);
    // A container that is started again in its pod is another one.
    let me = format!("{replica}_{:08x}", rand::random::<u32>());
    let election = Election::new(client.clone(), &lease_namespace, &arguments.lease_name, &me);
    let leadership = election.leadership();

    let settings = Arc::new(arguments.settings());
    let live_status_seconds = settings.live_status_seconds;
    let lock_ttl = ttl_from_environment().map_err(anyhow::Error::msg)?;
    let pace = Pace {
        lock_ttl,
        follow_every: Duration::from_secs(u64::from(arguments.follow_seconds)),
        window: Duration::from_secs(u64::from(arguments.window_seconds)),
        silent_after: Duration::from_secs(u64::from(arguments.silent_seconds)),
        ..Pace::default()
    };
    let (runners, woken) = Runners::new(pace);
    let runners = Arc::new(runners);
    let caches = Arc::new(Caches::default());
    let memory = Arc::new(Memory::default());
    let metrics = Arc::new(Metrics::new()?);
    let queue = Arc::new(Queue::<ObjectKey>::default());
    let service_account = own_service_account(&client).await;
    let rights = Rights {
        service_account: service_account.context("the API server doesn't say who this is")?,
        own_prefixes: arguments.own_identity_prefixes.clone(),
        endpoints: arguments.allowed_endpoints.clone(),
    };
    let identities = Arc::new(Identities::new(client.clone(), rights));
    let inquiry = Arc::new(Inquiry::new(client.clone()));
    let events = Events::new(client.clone(), &replica);
    let namespaces = namespaces(arguments);
    let watches: Vec<_> = namespaces
        .iter()
        .flat_map(|namespace| {
            let kinds = ["SidecarJob", "Job", "Pod"];
            kinds.map(|kind| Arc::new(WatchHealth::new(kind, namespace.as_deref())))
        })
        .collect();
    let intake = Intake {
        caches: Arc::clone(&caches),
        queue: Arc::clone(&queue),
        runners: Arc::clone(&runners),
        identities: Arc::clone(&identities),
        inquiry: Arc::clone(&inquiry),
        memory: Arc::clone(&memory),
    };
    let controller = Arc::new(Controller {
        observer: Observer {
            caches: Arc::clone(&caches),
            runners: Arc::clone(&runners),
            identities: Arc::clone(&identities),
            namespaces: Namespaces::new(client.clone()),
            inquiry,
            memory: Arc::clone(&memory),
            settings,
        },
        applier: Applier {
            client: client.clone(),
            runners: Arc::clone(&runners),
            identities,
            memory,
            events,
            metrics: Arc::clone(&metrics),
            leadership: leadership.clone(),
        },
        intake: intake.clone(),
        queue: Arc::clone(&queue),
        metrics: Arc::clone(&metrics),
    });
    let probe = Arc::new(Probe::new(Scrape {
        metrics,
        caches,
        runners,
        leadership,
        watches: watches.clone(),
        queue,
        live_status_seconds,
    }));
    Ok(Parts {
        client,
        namespaces,
        intake,
        probe,
        controller,
        woken,
        election,
        watches,
    })
}

fn begin_watches(
    watching: &mut JoinSet<()>,
    client: &Client,
    namespace: Option<&str>,
    intake: &Intake,
    health: &[Arc<WatchHealth>],
) {
    let [object_health, job_health, pod_health] = health else {
        unreachable!("three kinds are watched in each namespace");
    };
    let of_ours = Selection {
        labels: Some(labels::JOB_UID.to_owned()),
        ..Selection::default()
    };
    let live = Selection {
        fields: Some(OTHER_PODS.to_owned()),
        ..of_ours.clone()
    };
    let objects = SidecarJobIntake {
        intake: intake.clone(),
        namespace: namespace.map(str::to_owned),
    };
    let api_of_objects = api::<SidecarJob>(client, namespace);
    let health = Arc::clone(object_health);
    watching.spawn(watch(api_of_objects, Selection::default(), objects, health));
    let jobs = JobIntake {
        intake: intake.clone(),
        namespace: namespace.map(str::to_owned),
    };
    let api_of_jobs = api::<Job>(client, namespace);
    watching.spawn(watch(api_of_jobs, of_ours, jobs, Arc::clone(job_health)));
    let pods = PodIntake {
        intake: intake.clone(),
        namespace: namespace.map(str::to_owned),
    };
    let api_of_pods = api::<WorkerPod>(client, namespace);
    watching.spawn(watch(api_of_pods, live, pods, Arc::clone(pod_health)));
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<DeserializeGuard<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn namespaces(arguments: &Arguments) -> Vec<Option<String>> {
    let mut names = arguments.namespaces.clone();
    names.sort();
    names.dedup();
    match names.is_empty() {
        true => vec![None],
        false => names.into_iter().map(Some).collect(),
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "operator".to_owned(),
        name => name.to_owned(),
    }
}
