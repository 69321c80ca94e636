//! What a seed decides: the dataset, the spec, and what gets in the way.

use std::sync::Arc;

use crds::{OnSpecChange, SidecarJob};
use rules::model::Settings;
use serde_json::json;

use crate::random::Random;
use crate::worker::{Costs, Faults};

/// What may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// The operator dies between any two of its writes.
    pub crashes: bool,
    /// Workers die.
    pub kills: bool,
    /// Pods are evicted, and people and tools delete pods and Jobs.
    pub deletions: bool,
    /// Somebody takes the lock over.
    pub thefts: bool,
    /// Jobs are suspended and resumed, changed and asked for again.
    pub people: bool,
    /// Published shards are deleted behind the run's back.
    pub vanishing: bool,
}

impl Troubles {
    pub fn all() -> Self {
        Self {
            crashes: true,
            kills: true,
            deletions: true,
            thefts: true,
            people: true,
            vanishing: true,
        }
    }
}

/// One story.
#[derive(Debug)]
pub struct Story {
    pub seed: u64,
    pub troubles: Troubles,
    pub random: Random,
    pub shards: u64,
    /// What is wrong with some shards.
    pub faults: Faults,
    /// What pods cost.
    pub costs: Costs,
    /// The objects, all on the same prefix.
    pub objects: Vec<SidecarJob>,
    /// Steps of the simulation in which troubles happen.
    pub troubled_steps: u64,
    pub settings: Arc<Settings>,
}

pub const OUTPUT: &str = "s3://bucket/photos_sidecar/";

impl Story {
    pub fn new(seed: u64, troubles: Troubles) -> Self {
        let mut random = Random::new(seed);
        let shards = random.between(1, 90);
        let mut faults = Faults::default();
        if random.in_thousand(400) {
            for _ in 0..random.between(1, 4) {
                faults.poison.insert(random.below(shards));
            }
        }
        if random.in_thousand(300) {
            for _ in 0..random.between(1, 2) {
                let times = if random.in_thousand(700) { 2 } else { u32::MAX };
                faults.deadly.insert(random.below(shards), times);
            }
        }
        if random.in_thousand(150) {
            faults.hopeless.insert(random.below(shards));
        }
        let number = if random.in_thousand(300) { 2 } else { 1 };
        let objects = (0..number)
            .map(|position| object(position, &mut random))
            .collect();
        let settings = Settings {
            worker_image: "worker:test".to_owned(),
            item_seconds: random.between(1, 8) as f64,
            items_per_job: random.between(2, 12) as u32,
            live_status_seconds: 15,
            window_seconds: 60,
            ..Settings::default()
        };
        Self {
            seed,
            troubles,
            shards,
            faults,
            costs: Costs {
                pod: random.between(500, 5_000) as i64,
                start: random.between(0, 1_500) as i64,
                shard: match random.below(10) {
                    0..=6 => random.between(200, 2_000) as i64,
                    _ => random.between(3_000, 15_000) as i64,
                },
            },
            objects,
            troubled_steps: random.between(200, 1_500),
            settings: Arc::new(settings),
            random,
        }
    }
}

fn object(position: u64, random: &mut Random) -> SidecarJob {
    let policy = random.pick(&["Reject", "Rerun", "NewPrefix"]);
    let mut spec = json!({
        "dataset": {"mainPrefix": "s3://bucket/photos/", "keyColumn": "key"},
        "columns": [{"name": "score", "type": "float64"}],
        "pipeline": [{"joinFromParquet": {"source": "s3://bucket/index/", "columns": ["score"]}}],
        "output": {"prefix": OUTPUT},
        "throughput": {"maxWorkers": random.between(1, 12)},
        "canary": {"shards": random.pick(&[0, 1, 5, 20])},
        "failurePolicy": {
            "maxFailedShards": random.pick(&[0, 2, 1_000]),
            "retriesPerChunk": random.between(0, 3),
        },
        "onSpecChange": policy,
    });
    if random.in_thousand(500) {
        spec["throughput"]["targetRowsPerHour"] = json!(random.between(10_000, 20_000_000));
    }
    if random.in_thousand(250) {
        spec["queue"] = json!("team-queue");
    }
    if random.in_thousand(100) {
        spec["canary"]["minMatchRate"] = json!(0.99);
    }
    serde_json::from_value(json!({
        "apiVersion": "sidecarjob.dev/v1alpha1",
        "kind": "SidecarJob",
        "metadata": {
            "name": format!("photos-{position}"),
            "namespace": "team",
            "uid": format!("uid-{position}"),
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": spec,
    }))
    .expect("the object of a story is one")
}

/// Whether the policy of an object lets its run be replaced.
pub fn follows_changes(object: &SidecarJob) -> bool {
    object.spec.on_spec_change != OnSpecChange::Reject
}
