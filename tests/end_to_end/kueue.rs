//! The real Kueue: what it holds back, lets in with fewer workers, and takes back.

use harness::cluster::{Kueue, MANAGED_BY_KUEUE};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::{is_true, message, words};
use crate::site::alone;

/// CPU that a worker asks for, in thousandths.
const WORKER: u32 = 20;

/// A place whose Jobs Kueue looks after.
struct Queues<'a> {
    place: &'a Place,
    /// Of the one LocalQueue, and of the ClusterQueue behind it.
    name: &'a str,
    _kueue: Kueue<'a>,
}

impl<'a> Queues<'a> {
    async fn start(place: &'a Place) -> Option<Self> {
        let label = format!("{MANAGED_BY_KUEUE}=yes");
        let label = ["label", "namespace", &place.namespace, &label];
        place.cluster.kubectl(&label).unwrap();
        let kueue = place.cluster.start_kueue().unwrap()?;
        let queues = Self {
            place,
            name: &place.namespace,
            _kueue: kueue,
        };
        queues.give(0).await;
        Some(queues)
    }

    /// Has room for so many workers from now on.
    async fn give(&self, workers: u32) {
        self.apply(workers, "None").await;
    }

    async fn apply(&self, workers: u32, stop: &str) {
        let (name, namespace) = (self.name, &self.place.namespace);
        let objects = [
            json!({"kind": "ResourceFlavor", "metadata": {"name": "any"}}),
            json!({
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {
                    "namespaceSelector": {},
                    "stopPolicy": stop,
                    "resourceGroups": [{
                        "coveredResources": ["cpu", "memory", "ephemeral-storage"],
                        "flavors": [{"name": "any", "resources": [
                            {"name": "cpu", "nominalQuota": format!("{}m", workers * WORKER)},
                            {"name": "memory", "nominalQuota": "100Gi"},
                            {"name": "ephemeral-storage", "nominalQuota": "100Gi"},
                        ]}],
                    }],
                },
            }),
            json!({
                "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterQueue": name},
            }),
        ];
        let objects = objects.map(|mut object| {
            object["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
            object
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.place.apply(&list).await;
    }

    /// What Kueue says of why Jobs wait.
    fn words(&self) -> Vec<String> {
        let namespace = ["--namespace", &self.place.namespace];
        let get = ["get", "workloads.kueue.x-k8s.io", "--output=json"];
        let list = self.place.cluster.kubectl(&[&get[..], &namespace].concat());
        let list: Value = serde_json::from_str(&list.unwrap()).unwrap();
        let workloads = list["items"].as_array().unwrap().iter();
        let conditions =
            workloads.flat_map(|one| one["status"]["conditions"].as_array().into_iter().flatten());
        conditions
            .filter_map(|condition| condition["message"].as_str().map(str::to_owned))
            .collect()
    }
}

async fn job(place: &Place) -> Option<Job> {
    let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
    let waiting = |job: &Job| {
        job.status
            .as_ref()
            .is_none_or(|s| s.completion_time.is_none())
    };
    jobs.items.into_iter().find(waiting)
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// As [`Place::slow`], for three workers and without further tries.
fn slow(more: &Value) -> Value {
    let mut spec = Place::slow();
    spec["throughput"]["maxWorkers"] = 3.into();
    spec["failurePolicy"] = json!({"retriesPerChunk": 0});
    crate::sidecar_jobs::lay_over(&mut spec, more);
    spec
}

#[tokio::test]
async fn kueue_holds_back_lets_in_fewer_and_takes_back() {
    let _node = alone().await;
    let Some(place) = Place::new("kueue", Place::SMALL).await else {
        return;
    };
    let Some(queues) = Queues::start(&place).await else {
        return;
    };
    let photos = place.join_job("photos", &slow(&json!({"queue": queues.name})));
    let witness = Witness::of(place.output("photos"));
    place.create(&photos).await;

    // There is no room, and Kueue's words for that are ours.
    let object = place
        .wait("photos", "queued", |object| {
            is_true(object, "Queued") && message(object).contains("quota")
        })
        .await;
    let (reason, said) = words(&object, "Queued");
    assert_eq!(reason, "WaitingForQueue");
    let theirs = queues.words();
    assert!(
        theirs.iter().any(|words| said.contains(words.as_str())),
        "{said}\n{theirs:?}"
    );
    assert!(is_suspended(&job(&place).await.unwrap()));

    // There is room for two of three, for as long as it goes on.
    queues.give(2).await;
    place.wait_for_shards("photos", 12).await;
    let object = place
        .wait("photos", "let in", |object| !is_true(object, "Queued"))
        .await;
    assert_eq!(words(&object, "Queued").0, "Admitted");
    let admitted = job(&place).await.unwrap();
    let parallelism = admitted.spec.as_ref().unwrap().parallelism;
    assert_eq!(parallelism, Some(2), "Kueue's word is the last");
    assert!(place.running().await.len() <= 2);

    // It is taken back under way, which is nobody's fault.
    queues.apply(2, "HoldAndDrain").await;
    let object = place
        .wait("photos", "taken back", |object| is_true(object, "Queued"))
        .await;
    assert_eq!(words(&object, "Queued").0, "WaitingForQueue");
    eventually("no worker is left", async || {
        place.running().await.is_empty().then_some(())
    })
    .await;
    let before = place.shards("photos").len();
    assert!(before < Place::SMALL.shards, "it was too quick");
    queues.give(4).await;
    let object = place.wait_until_whole(&photos, witness).await;
    assert!(!is_true(&object, "Queued"));
    for batch in object.status.unwrap().batches {
        assert_eq!((batch.attempt, batch.failed), (1, 0), "{batch:?}");
    }
}

#[tokio::test]
async fn a_job_that_kueue_suspends_without_a_queue_is_left_to_it() {
    let _node = alone().await;
    let Some(place) = Place::new("kueue-all", Place::SMALL).await else {
        return;
    };
    let Some(queues) = Queues::start(&place).await else {
        return;
    };
    let mut photos = place.join_job("photos", &slow(&json!({})));
    let witness = Witness::of(place.output("photos"));
    place.create(&photos).await;
    let object = place
        .wait("photos", "told of", |object| is_true(object, "Queued"))
        .await;
    assert_eq!(words(&object, "Queued").0, "SuspendedByAnother");
    let first = job(&place).await.unwrap();
    assert!(is_suspended(&first));

    // No look at the object begins a fight over it.
    for workers in [2, 4] {
        let change = json!({"spec": {"throughput": {"maxWorkers": workers}}});
        let changed = place.patch("photos", &change).await;
        place
            .wait("photos", "looked at", |object| {
                let status = object.status.as_ref();
                status.and_then(|status| status.observed_generation) == changed.metadata.generation
            })
            .await;
    }
    let now = job(&place).await.unwrap();
    assert!(is_suspended(&now));
    assert_eq!(now.uid(), first.uid());

    // With a queue it makes way for one that the queue knows.
    queues.give(4).await;
    let queue = json!({"spec": {"queue": queues.name}});
    place.patch("photos", &queue).await;
    photos.spec.queue = Some(queues.name.to_owned());
    let object = place.wait_until_whole(&photos, witness).await;
    for batch in object.status.unwrap().batches {
        assert_eq!(batch.attempt, 1, "{batch:?}");
    }
}
