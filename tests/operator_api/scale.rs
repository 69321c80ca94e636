//! Many indexes, and many shards that fail, on nodes that are only told of: kwok looks after the
//! pods' objects, and their commands run as processes. `make scale` does it at full size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Kwok};
use harness::dataset::{Shape, path};
use serde_json::{Value, json};

use crate::operator::{Operator, Start};
use crate::place::{Place, record};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{is_true, reason};

/// Processes of workers at a time.
const PROCESSES: usize = 12;

/// Indexes of the one test; the other has ten times as many shards.
pub fn size() -> usize {
    let asked = std::env::var("SIDECARJOB_SCALE").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// Longest wait for the end of a run.
fn limit() -> Duration {
    Duration::from_secs(120 + size() as u64 / 4)
}

/// Nodes without machines; they go with this, as other tests want none.
struct Nodes<'a>(&'a Cluster);

impl<'a> Nodes<'a> {
    fn pretend(cluster: &'a Cluster) -> Option<Self> {
        let kwok = Kwok {
            nodes: 20,
            // Their ends are told by what runs them.
            run_time: Duration::from_secs(24 * 3600),
            ..Kwok::default()
        };
        cluster.pretend_nodes(&kwok).unwrap().then(|| Self(cluster))
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        let deleted = self.0.kubectl(&["delete", "nodes", "--all"]);
        if !std::thread::panicking() {
            deleted.unwrap();
        }
    }
}

/// Main shards, all of them alike, of which `failing` are no Parquet.
pub fn dataset(place: &Place, shards: usize, failing: impl Fn(usize) -> bool) -> PathBuf {
    let root = place.folder.path().join("many");
    let one = Shape {
        shards: 1,
        rows: 4,
        ..Shape::default()
    };
    one.write(&root);
    let main = root.join("main");
    let bytes = std::fs::read(main.join(path(0))).unwrap();
    for shard in 0..shards {
        let file = main.join(path(shard));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let content = if failing(shard) {
            b"no parquet at all"
        } else {
            &bytes[..]
        };
        std::fs::write(file, content).unwrap();
    }
    root
}

/// A job that needs no index.
pub fn scaffold(more: &Value) -> Value {
    let mut spec = json!({
        "columns": [{"name": "score", "type": "float64"}],
        "pipeline": [{"extractScaffold": {}}],
        "throughput": {"maxWorkers": 10_000},
        "canary": {"shards": 0},
    });
    crate::sidecar_jobs::lay_over(&mut spec, more);
    spec
}

async fn begin(place: &Place, arguments: &[&str]) -> Operator {
    let mut start = Start::unhurried(place);
    for argument in arguments {
        start = start.argument(argument);
    }
    let operator = start.begin().await;
    operator.wait_for("leader").await;
    operator
}

/// Prints what a run has cost the operator and the API server, and checks that nothing that was
/// written was refused.
async fn report(place: &Place, operator: &Operator, what: &str, began: Instant) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for request in place.cluster.requests().unwrap() {
        if request.namespace != place.namespace || !request.user.ends_with(":sidecarjob-operator") {
            continue;
        }
        // Somebody else was first, or it is gone: that is answered by another look.
        if request.code >= 400 && ![404, 409].contains(&request.code) {
            refused.insert(format!("{request:?}"));
        }
        let kind = format!("{} {}", request.verb, request.resource);
        *counts.entry(kind).or_default() += 1;
    }
    assert!(refused.is_empty(), "{refused:#?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.process_id()));
    let peak = status.unwrap();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let reconciles = operator.metric("sidecarjob_reconciles_total", "").await;
    println!(
        "{what}: {:.0} s, {} reconciles; operator's memory {peak}; API requests {counts:?}",
        began.elapsed().as_secs_f64(),
        reconciles.unwrap_or_default(),
    );
}

fn sidecars(folder: &Path) -> usize {
    let everything = crate::place::everything(folder);
    let is_shard = |path: &Path| {
        path.extension()
            .is_some_and(|extension| extension == "parquet")
    };
    everything
        .iter()
        .filter(|(path, ..)| is_shard(path))
        .count()
}

/// As many indexes as there are shards, in Jobs of half of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_index_of_many_is_done_once() {
    let Some(place) = Place::new("many").await else {
        return;
    };
    let Some(_nodes) = Nodes::pretend(place.cluster) else {
        return;
    };
    let shards = size();
    let root = dataset(&place, shards, |_| false);
    let in_a_job = format!("--items-per-job={}", shards / 2);
    let operator = begin(&place, &[&in_a_job]).await;
    let pods = PodRunner::limited(&place, PROCESSES);
    let began = Instant::now();
    place
        .create(&place.job("photos", &root, &scaffold(&json!({}))))
        .await;
    let object = place.wait_for_end_within(limit(), "photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    let status = object.status.unwrap();
    let done: i32 = status.batches.iter().map(|batch| batch.done).sum();
    assert_eq!(done as usize, shards, "{:#?}", status.batches);
    assert_eq!(pods.started(), shards, "pods");
    assert_eq!(sidecars(&place.output("photos")), shards);
    report(&place, &operator, &format!("{shards} indexes"), began).await;
}

/// One shard in twenty fails, at every other place, which is the worst for lists of ranges: the
/// object stays small, its counts are exact, and all of them are listed beside the output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_many_shards_fit_into_an_object() {
    let Some(place) = Place::new("failing").await else {
        return;
    };
    let Some(_nodes) = Nodes::pretend(place.cluster) else {
        return;
    };
    let shards = 10 * size();
    let failing = shards / 20;
    let root = dataset(&place, shards, |shard| {
        shard % 2 == 0 && shard < 2 * failing
    });
    let operator = begin(&place, &["--item-seconds=20"]).await;
    let _pods = PodRunner::limited(&place, PROCESSES);
    let seen = record(&place).await;
    let began = Instant::now();
    let spec = scaffold(&json!({
        "throughput": {"maxWorkers": 8},
        "failurePolicy": {"maxFailedShards": failing},
        "canary": {"shards": 20},
    }));
    place.create(&place.job("photos", &root, &spec)).await;
    let object = place.wait_for_end_within(limit(), "photos").await;
    assert_eq!(reason(&object, "Ready"), Some("CompletedWithFailures"));
    let status = object.status.unwrap();
    let counted = status.shards.unwrap();
    assert_eq!(counted.failed as usize, failing);
    assert_eq!(counted.done as usize, shards - failing);
    assert_eq!(sidecars(&place.output("photos")), shards - failing);
    let listed = status.failure_report.unwrap();
    let listed = std::fs::read_to_string(listed.trim_start_matches("file://")).unwrap();
    let listed: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["path"].as_str().map(str::to_owned)
        })
        .collect();
    let expected: BTreeSet<String> = (0..failing).map(|number| path(2 * number)).collect();
    assert!(listed == expected, "{} listed", listed.len());
    let seen = Arc::clone(&seen);
    let sizes: Vec<usize> = {
        let seen = seen.lock().unwrap();
        seen.iter()
            .map(|object| json!(object).to_string().len())
            .collect()
    };
    let largest = sizes.iter().max().copied().unwrap();
    assert!(largest < 32 * 1024, "{largest} bytes");
    let what = format!(
        "{shards} shards, {failing} fail; {} versions of the object, the largest of {largest} bytes",
        sizes.len()
    );
    report(&place, &operator, &what, began).await;
}
