//! The operator dies, or Jobs disappear: nothing is done twice and nothing is lost.

use std::collections::BTreeMap;
use std::path::Path;

use crds::SidecarJob;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::place::{Place, eventually, everything, shards};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{delete_all, is_true};

fn done(object: &SidecarJob) -> i64 {
    let shards = object
        .status
        .as_ref()
        .and_then(|status| status.shards.clone());
    shards.map_or(0, |shards| shards.done)
}

fn writes_of_jobs(place: &Place) -> usize {
    let requests = place.cluster.requests().unwrap();
    let writes = requests.iter().filter(|request| {
        request.user.ends_with(":sidecarjob-operator")
            && request.is_write()
            && (request.resource.starts_with("jobs") || request.resource.starts_with("sidecarjobs"))
    });
    writes.count()
}

#[tokio::test]
async fn a_restart_after_the_jobs_are_gone_repeats_nothing() {
    let Some(place) = Place::new("restart").await else {
        return;
    };
    let root = place.dataset("d", 6);
    let operator = Operator::begin(&place).await;
    let pods = PodRunner::begin(&place);
    let names = ["a", "b", "c"];
    for name in names {
        place.create(&place.job(name, &root, &json!({}))).await;
    }
    for name in names {
        let object = place.wait_for_end(name).await;
        assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    }
    operator.terminate();
    delete_all(&place.jobs(), &DeleteParams::background()).await;
    let mut before = BTreeMap::new();
    for name in names {
        before.insert(name, place.object(name).await);
    }
    // A lock that the process left is given up by the next one.
    let files = || {
        let mut files = everything(&place.output(""));
        files.retain(|(path, ..)| !path.ends_with("_sidecar/writer.json"));
        files
    };
    let (before_restart, writes) = (files(), writes_of_jobs(&place));
    let started = pods.started();

    for _ in 0..2 {
        let operator = Operator::begin(&place).await;
        eventually("all were looked at", async || {
            let looks = operator
                .metric("sidecarjob_reconciles_total", "result=\"ok\"")
                .await?;
            (looks >= 3.0).then_some(())
        })
        .await;
        operator.terminate();
    }
    assert_eq!(writes_of_jobs(&place), writes);
    assert_eq!(
        files(),
        before_restart,
        "nothing is written beside the output"
    );
    assert_eq!(pods.started(), started);
    for name in names {
        assert_eq!(place.object(name).await, before[name]);
    }
}

#[tokio::test]
async fn a_job_that_somebody_deletes_is_made_good_without_repeating_what_is_done() {
    let Some(place) = Place::new("deleted").await else {
        return;
    };
    let root = place.dataset("d", 40);
    let _operator = Operator::begin(&place).await;
    let pods = PodRunner::limited(&place, 1);
    let spec = json!({"canary": {"shards": 2}, "throughput": {"maxWorkers": 2}});
    place.create(&place.job("photos", &root, &spec)).await;
    place
        .wait("photos", "under way", |object| done(object) >= 4)
        .await;
    let output = place.output("photos");
    let published: BTreeMap<_, _> = everything(&output)
        .into_iter()
        .filter(|(path, ..)| {
            path.extension()
                .is_some_and(|extension| extension == "parquet")
        })
        .map(|(path, _, time)| (path, time))
        .collect();
    delete_all(&place.jobs(), &DeleteParams::foreground()).await;
    let least = done(&place.object("photos").await);
    pods.set_limit(4);
    let mut most = least;
    loop {
        let object = place.object("photos").await;
        assert!(
            done(&object) >= most,
            "the counter fell: {:#}",
            json!(object.status)
        );
        most = done(&object);
        if is_true(&object, "Complete") {
            break;
        }
        assert!(!is_true(&object, "Failed"), "{:#}", json!(object.status));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(most, 40);
    assert_eq!(shards(&output).len(), 40);
    for (path, _, time) in everything(&output) {
        if let Some(former) = published.get(&path) {
            assert_eq!(*former, time, "{} was made again", path.display());
        }
    }
}

#[tokio::test]
async fn a_killed_operator_goes_on_in_the_same_epoch() {
    let Some(place) = Place::new("killed").await else {
        return;
    };
    let root = place.dataset("d", 24);
    let mut operator = Some(Operator::begin(&place).await);
    let _pods = PodRunner::limited(&place, 2);
    place
        .create(&place.job("photos", &root, &json!({"canary": {"shards": 2}})))
        .await;
    for least in [1, 8, 16] {
        place
            .wait("photos", "further", |object| done(object) >= least)
            .await;
        // By turns in order and not: the lock is kept either way.
        match (operator.take(), least) {
            (Some(running), 8) => assert!(running.terminate().success()),
            (Some(running), _) => running.kill(),
            (None, _) => {}
        }
        operator = Some(Operator::begin(&place).await);
    }
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    assert_eq!(shards(&place.output("photos")).len(), 24);
    let lock = lock_once_released(&place.output("photos")).await;
    assert_eq!(lock["epoch"], 1);
}

/// The writer lock of an output, once it is given up.
async fn lock_once_released(output: &Path) -> Value {
    let path = output.join("_sidecar/writer.json");
    eventually("the lock is given up", async || {
        let lock: Value = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        (lock["state"] == "released").then_some(lock)
    })
    .await
}

#[tokio::test]
async fn of_two_jobs_on_one_prefix_one_waits_and_then_starts_by_itself() {
    let Some(place) = Place::new("conflict").await else {
        return;
    };
    let root = place.dataset("d", 8);
    let _operator = Operator::begin(&place).await;
    let pods = PodRunner::limited(&place, 0);
    place.create(&place.job("first", &root, &json!({}))).await;
    place
        .wait("first", "with the lock", |object| {
            is_true(object, "Planned")
        })
        .await;
    let output = format!("{}/", place.output("first").display());
    let second = place.job("second", &root, &json!({"output": {"prefix": output}}));
    place.create(&second).await;
    let object = place
        .wait("second", "locked out", |object| {
            is_true(object, "OutputLocked")
        })
        .await;
    let status = object.status.clone().unwrap();
    let holder = format!("{}/first", place.namespace);
    assert!(
        status
            .conditions
            .iter()
            .any(|condition| condition.message.contains(&holder)),
        "{:#}",
        json!(status)
    );
    pods.set_limit(4);
    for name in ["first", "second"] {
        let object = place.wait_for_end(name).await;
        assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    }
    let object = place.object("second").await;
    let counts = object.status.clone().unwrap().shards.unwrap();
    assert_eq!(
        (counts.done, counts.kept),
        (8, 8),
        "what the first made is kept"
    );
}

#[tokio::test]
async fn deleting_a_job_ends_its_pods_and_frees_its_prefix() {
    let Some(place) = Place::new("gone").await else {
        return;
    };
    let root = place.dataset("d", 8);
    let _operator = Operator::begin(&place).await;
    let pods = PodRunner::limited(&place, 0);
    place.create(&place.job("photos", &root, &json!({}))).await;
    eventually("a Job is there", async || {
        let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
        (!jobs.items.is_empty()).then_some(())
    })
    .await;
    place
        .objects()
        .delete("photos", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the Jobs are gone", async || {
        let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
        jobs.items.is_empty().then_some(())
    })
    .await;
    lock_once_released(&place.output("photos")).await;
    // The same name again is another job.
    pods.set_limit(4);
    place.create(&place.job("photos", &root, &json!({}))).await;
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
}
