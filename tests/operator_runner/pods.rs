//! The same with the real worker: `shard-worker chunk`, as pods run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::dataset::{Shape, full_job};
use harness::tool::skip;
use rules::model::LockFacts;
use storage::state::sentinel::Sentinel;

use crate::controller::Controller;
use crate::place::Place;

/// The binary of the worker; cargo puts it beside the folder of the tests.
fn binary() -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(Path::parent).unwrap();
    let binary = folder.join("shard-worker");
    if binary.is_file() {
        return Some(binary);
    }
    skip(&format!(
        "{} is not there; run `cargo build --workspace --bin shard-worker`",
        binary.display()
    ));
    None
}

/// A dataset with a job that does everything, planned.
async fn planned(place: &Place, shards: u64) -> Controller {
    let root = place.uri("");
    let shape = Shape {
        shards: usize::try_from(shards).unwrap(),
        ..Shape::default()
    };
    shape.write(Path::new(&root));
    let text = full_job(root.trim_end_matches('/'), &place.uri("out/"));
    let job = crds::manifest::parse(&text, Path::new("job.yaml")).unwrap();
    let mut controller = Controller::new(place, "a");
    controller.hold.digest = crds::digest::pipeline_digest(&job.spec).unwrap();
    controller
        .hold
        .main
        .clone_from(&job.spec.dataset.main_prefix);
    controller.hold.manifest = Some(serde_json::to_value(&job).unwrap());
    controller.held().await;
    assert_eq!(controller.planned().await.todo, shards);
    controller
}

/// Runs the pod of an index; its exit code.
fn pod(controller: &Controller, (batch, attempt, index): (u32, u32, u32)) -> (Option<i32>, String) {
    let LockFacts::Held { epoch } = controller.facts().lock else {
        panic!("{:?}", controller.facts().lock);
    };
    let mut command = Command::new(binary().unwrap());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("AWS_") || name.starts_with("SIDECARJOB_") {
            command.env_remove(&*name);
        }
    }
    let ended = command
        .arg("chunk")
        .args(["--output-prefix", &controller.hold.prefix])
        .args(["--run", &controller.hold.run])
        .args(["--digest", &controller.hold.digest])
        .args(["--epoch", &epoch.to_string()])
        .args(["--batch", &batch.to_string()])
        .args(["--attempt", &attempt.to_string()])
        .args(["--termination-log", "/dev/null"])
        .env("JOB_COMPLETION_INDEX", index.to_string())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_real_workers_is_followed_and_sealed() {
    if binary().is_none() {
        return;
    }
    let place = Place::folder();
    let mut controller = planned(&place, 12).await;
    let poisoned = format!("main/{}", harness::dataset::path(4));
    std::fs::write(place.uri(&poisoned), "garbage").unwrap();
    controller.start(0, 1, &[(0, 5), (5, 12)]).await.unwrap();
    let codes = [0, 1].map(|index| pod(&controller, (0, 1, index)));
    let some_failed = codes.iter().filter(|(code, _)| *code == Some(1));
    assert_eq!(some_failed.count(), 1, "{codes:?}");
    controller.ended(0, 1, 2).await;
    assert!(controller.settled(0, 1).await.is_empty());
    let progress = controller.facts().progress.clone();
    assert_eq!((progress.done, progress.failed), (11, 1));
    assert_eq!(progress.rows, 11 * 20);
    assert!(progress.matched > 0 && progress.matched < progress.rows);
    assert_eq!(progress.nulls["filter_clarity"].1, 11 * 20, "{progress:?}");
    let cost = progress.costs.cost();
    assert!(cost.fixed > 0.0 && cost.shard > 0.0, "{cost:?}");
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (11, 1));
    assert_eq!(
        (sealed.rows, sealed.matched),
        (progress.rows, progress.matched)
    );
    assert_eq!(sealed.failures[0].path, harness::dataset::path(4));
    controller.released().await;

    // Main is mended, and the next run does what is left: that shard alone.
    Shape::default().write(Path::new(&place.uri("")));
    controller.next_run();
    controller.held().await;
    let todo = controller.planned().await.todo;
    controller.start(0, 1, &[(0, todo)]).await.unwrap();
    let (code, errors) = pod(&controller, (0, 1, 0));
    assert_eq!(code, Some(0), "{errors}");
    assert!(controller.settled(0, 1).await.is_empty());
    let sealed = controller.sealed().await.unwrap();
    assert_eq!(
        (sealed.shards, sealed.failed, sealed.rows),
        (12, 0, 12 * 20)
    );
    let sentinel = Sentinel::read(&*place.output()).await.unwrap();
    assert_eq!(sentinel.map(|sentinel| sentinel.shards), Some(12));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_retry_mends_is_told_by_the_worker() {
    if binary().is_none() {
        return;
    }
    let place = Place::folder();
    let mut controller = planned(&place, 4).await;
    std::fs::remove_dir_all(place.uri("index")).unwrap();
    controller.start(0, 1, &[(0, 4)]).await.unwrap();
    let (code, errors) = pod(&controller, (0, 1, 0));
    assert_eq!(code, Some(2), "{errors}");
    controller.ended(0, 1, 1).await;
    assert!(
        controller.settled(0, 1).await.is_empty(),
        "nothing to try again"
    );
    let facts = controller.facts();
    let batch = &facts.batches[0];
    assert!(batch.attempts[0].was_seen);
    let given_up = &batch.given_up;
    assert_eq!(
        (&given_up.items[..], given_up.is_permanent),
        (&[(0, 4)][..], true)
    );
    let reason = given_up.reason.clone().unwrap();
    assert!(reason.contains("index"), "{reason}");
    assert_eq!((facts.progress.done, facts.progress.failed), (0, 4));
    assert_eq!(facts.progress.failures[0].path, "shards 0 to 3 of the plan");

    // The seal counts its shards as failed, each with the reason, and asks for nothing again.
    let sealed = controller.sealed_without(&[(0, 4)], None).await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (0, 4));
    let told: Vec<(&str, &str)> = sealed
        .failures
        .iter()
        .map(|failure| (failure.path.as_str(), failure.reason.as_str()))
        .collect();
    let mut paths: Vec<String> = (0..4).map(harness::dataset::path).collect();
    paths.sort();
    let expected: Vec<(&str, &str)> = paths
        .iter()
        .map(|path| (path.as_str(), reason.as_str()))
        .collect();
    assert_eq!(told, expected);
}

/// A worker that was killed has recorded nothing of what it published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_tried_often_enough_is_sealed_as_failed() {
    if binary().is_none() {
        return;
    }
    let place = Place::folder();
    let mut controller = planned(&place, 6).await;
    controller.start(0, 1, &[(0, 3), (3, 6)]).await.unwrap();
    let (code, errors) = pod(&controller, (0, 1, 0));
    assert_eq!(code, Some(0), "{errors}");
    let (code, errors) = pod(&controller, (0, 1, 1));
    assert_eq!(code, Some(0), "{errors}");
    // As if the second had been killed: the middle one of its shards is there, two aren't, and no
    // lines.
    let remains = |name: &str| place.uri(&format!("out/{name}"));
    for shard in [4, 5] {
        std::fs::remove_file(remains(&harness::dataset::path(shard))).unwrap();
    }
    let run = controller.hold.run.parse().unwrap();
    let lines = storage::state::layout::chunk_lines(&run, 3);
    std::fs::remove_file(remains(&lines)).unwrap();
    let reason = "its workers died: OOMKilled (exit 137)";
    let sealed = controller
        .sealed_without(&[(3, 6)], Some(reason))
        .await
        .unwrap();
    assert_eq!((sealed.shards, sealed.failed, sealed.rows), (3, 3, 3 * 20));
    let reasons: Vec<&str> = sealed
        .failures
        .iter()
        .map(|failure| failure.reason.as_str())
        .collect();
    let there = format!("{reason}; it was published all the same; another run takes it over");
    assert_eq!(reasons, [reason, there.as_str(), reason]);
    controller.released().await;

    // Another run finds what is there, and makes the rest.
    controller.next_run();
    controller.held().await;
    assert_eq!(controller.planned().await.todo, 3);
    controller.start(0, 1, &[(0, 3)]).await.unwrap();
    let (code, errors) = pod(&controller, (0, 1, 0));
    assert_eq!(code, Some(0), "{errors}");
    assert!(controller.settled(0, 1).await.is_empty());
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (6, 0));
}
