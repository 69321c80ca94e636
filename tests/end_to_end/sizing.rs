//! A target that few workers meet.

use std::path::Path;

use kube::api::ListParams;
use serde_json::json;
use storage::state::report::ChunkReport;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::is_true;
use crate::site::alone;
use harness::dataset::Shape;

const SHAPE: Shape = Shape {
    shards: 3200,
    ..Place::SMALL
};

/// Each item is a pod of its own, and so a worker of its own by name, and ends most of its shards
/// together; yet there are no more than two at a time, and they do as much as is asked for.
#[tokio::test]
async fn a_target_that_two_workers_meet_is_met_by_two_or_three() {
    let _node = alone().await;
    let Some(place) = Place::new("sizing", SHAPE).await else {
        return;
    };
    let mut slow = Place::slow();
    slow["throughput"]["maxWorkers"] = 1.into();
    // Items are cut by what the canary has measured.
    slow["canary"]["shards"] = 8.into();
    let job = place.join_job("photos", &slow);
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    // What one worker does an hour.
    let object = place
        .wait("photos", "measured", |object| {
            let status = object.status.as_ref();
            let done: i32 = status.map_or(0, |status| {
                status.batches.iter().map(|batch| batch.done).sum()
            });
            done >= 4
        })
        .await;
    let sizing = object.status.and_then(|status| status.sizing).unwrap();
    let speed = sizing.observed_shards_per_second.unwrap() / sizing.observed_workers.unwrap();
    let target = (1.5 * speed * SHAPE.rows as f64 * 3600.0) as i64;
    let throughput = json!({"targetRowsPerHour": target, "maxWorkers": 12});
    place
        .patch("photos", &json!({"spec": {"throughput": throughput}}))
        .await;
    let mut seen = Vec::new();
    eventually("the run ends", async || {
        let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
        let wanted = jobs
            .items
            .iter()
            .filter_map(|job| job.spec.as_ref()?.parallelism);
        let running = place.running().await.len();
        let object = place.object("photos").await;
        let status = object.status.clone().unwrap();
        let workers = status.sizing.as_ref().and_then(|sizing| sizing.workers);
        let now = (wanted.sum::<i32>(), running, workers.unwrap_or_default());
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        is_true(&object, "Complete").then_some(())
    })
    .await;
    let object = place.wait_until_whole(&job, witness).await;
    let items: i32 = object
        .status
        .unwrap()
        .batches
        .iter()
        .map(|batch| batch.done)
        .sum();
    assert!(items >= 20, "{items} items are too few to tell");
    let most = seen
        .iter()
        .map(|(_, running, workers)| (*workers).max(*running as i32));
    let most = most.max().unwrap();
    // On a machine that has something else to do, workers are slower than the first one was.
    let slowest = seconds_per_shard(&place.output("photos"))
        .into_iter()
        .fold(0.0, f64::max);
    let needed = (target as f64 / SHAPE.rows as f64 / 3600.0 * slowest).ceil() as i32;
    assert!(
        (2..=needed.max(3)).contains(&most),
        "{needed} needed: {seen:?}"
    );
}

/// What a shard has cost in each item but the small ones of the canary and of the end, as the
/// items' own reports say.
fn seconds_per_shard(output: &Path) -> Vec<f64> {
    let run = std::fs::read_dir(output.join("_sidecar/runs"))
        .unwrap()
        .next();
    let chunks = std::fs::read_dir(run.unwrap().unwrap().path().join("chunks")).unwrap();
    let files = chunks.map(|file| file.unwrap().path());
    let reports: Vec<ChunkReport> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "json"))
        .map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
        .collect();
    let sizes = reports.iter().map(|report| report.counts.shards_done);
    let most = sizes.max().unwrap();
    let whole = reports
        .iter()
        .filter(|report| 2 * report.counts.shards_done > most);
    let costs: Vec<f64> = whole
        .map(|report| {
            let worked = (report.updated_at - report.started_at).as_seconds_f64();
            let start = report.counts.seconds.start;
            (worked + start) / report.counts.shards_done as f64
        })
        .collect();
    assert!(costs.len() >= 15, "{costs:?}");
    costs
}
