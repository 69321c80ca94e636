//! The life of a job.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::operator::Operator;
use crate::place::{Place, eventually, record, shards};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{condition, is_true, phase, reason};
use crate::standing::{Standing, standing};

#[tokio::test]
async fn a_job_goes_from_an_intent_to_a_sealed_output() {
    let Some(place) = Place::new("life").await else {
        return;
    };
    let root = place.dataset("d", 24);
    let seen = record(&place).await;
    place
        .create(&place.job("photos", &root, &json!({"canary": {"shards": 3}})))
        .await;
    // Before the operator has seen it nothing takes it for ready.
    let fresh = place.object("photos").await;
    assert_eq!(fresh.status.as_ref().unwrap().observed_generation, Some(-1));
    assert_eq!(standing(&fresh), Standing::InProgress);

    let operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let object = place.wait_for_end("photos").await;
    assert_eq!(phase(&object), "Succeeded", "{:#}", json!(object.status));
    assert_eq!(standing(&object), Standing::Current);
    assert_eq!(reason(&object, "Ready"), Some("Completed"));
    assert_eq!(condition(&object, "Planned"), Some("True"));
    assert_eq!(condition(&object, "CanaryPassed"), Some("True"));
    let status = object.status.clone().unwrap();
    assert_eq!(
        status.shards.as_ref().unwrap().progress.as_deref(),
        Some("24/24")
    );
    assert_eq!(status.observed_generation, object.metadata.generation);
    let run = status.run.unwrap();
    assert!(run.finished_at.is_some());

    let output = place.output("photos");
    assert_eq!(shards(&output).len(), 24);
    assert!(output.join("_SUCCESS").is_file());
    assert!(output.join("_sidecar/manifest.json").is_file());

    // Nothing of the run is left but its output.
    eventually("the Jobs are gone", async || {
        let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
        jobs.items.is_empty().then_some(())
    })
    .await;

    // Every status on the way was one that tools understand.
    let seen = seen.lock().unwrap().clone();
    let mut most_done = 0;
    for object in &seen {
        let status = object.status.clone().unwrap_or_default();
        if status.observed_generation == Some(-1) {
            continue;
        }
        let has_ended = is_true(object, "Complete");
        let expected = if has_ended {
            Standing::Current
        } else {
            Standing::InProgress
        };
        assert_eq!(standing(object), expected, "{:#}", json!(status));
        assert_eq!(is_true(object, "Ready"), has_ended, "{:#}", json!(status));
        for condition in &status.conditions {
            assert_eq!(condition.observed_generation, object.metadata.generation);
        }
        if let Some(shards) = &status.shards {
            assert!(
                shards.done >= most_done,
                "the counter fell: {:#}",
                json!(status)
            );
            most_done = shards.done;
        }
        assert!(json!(object).to_string().len() < 32 * 1024);
    }
    let mut phases: Vec<&str> = seen
        .iter()
        .map(phase)
        .filter(|word| !word.is_empty())
        .collect();
    phases.dedup();
    assert_eq!(phases.first(), Some(&"Pending"), "{phases:?}");
    assert_eq!(phases.last(), Some(&"Succeeded"), "{phases:?}");

    // People read what happened.
    let events = place.events("photos").await;
    for expected in ["RunStarted", "Planned", "Completed"] {
        assert!(
            events.iter().any(|(reason, _)| reason == expected),
            "{expected}: {events:?}"
        );
    }

    // Numbers are there for as long as the object is.
    let ours = format!("namespace=\"{}\"", place.namespace);
    assert_eq!(
        operator
            .metric("sidecarjob_shards", &format!("{ours},state=\"done\""))
            .await,
        Some(24.0)
    );
    place
        .objects()
        .delete("photos", &DeleteParams::default())
        .await
        .unwrap();
    eventually("its series are gone", async || {
        let (_, text) = operator.get("/metrics").await?;
        (!text.contains(&ours)).then_some(())
    })
    .await;
    assert_eq!(shards(&output).len(), 24, "the output stays");
}

#[tokio::test]
async fn pods_that_fit_nowhere_are_told_of_in_the_schedulers_words() {
    let Some(place) = Place::new("pending").await else {
        return;
    };
    let root = place.dataset("d", 4);
    let _operator = Operator::begin(&place).await;
    place.create(&place.job("photos", &root, &json!({}))).await;
    let object = place
        .wait("photos", "unschedulable", |object| {
            is_true(object, "WorkersUnschedulable")
        })
        .await;
    let status = object.status.clone().unwrap();
    let words = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "WorkersUnschedulable");
    assert!(
        words.unwrap().message.contains("no nodes available"),
        "{:#}",
        json!(status)
    );
    assert_eq!(standing(&object), Standing::InProgress);

    let _pods = PodRunner::begin(&place);
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"));
    assert!(!is_true(&object, "WorkersUnschedulable"));
}

#[tokio::test]
async fn a_suspended_job_starts_nothing_and_goes_on_afterwards() {
    let Some(place) = Place::new("suspend").await else {
        return;
    };
    let root = place.dataset("d", 12);
    let _operator = Operator::begin(&place).await;
    let pods = PodRunner::limited(&place, 1);
    place
        .create(&place.job("photos", &root, &json!({"canary": {"shards": 1}})))
        .await;
    place.wait_until_under_way("photos").await;
    place
        .patch("photos", &json!({"spec": {"suspend": true}}))
        .await;
    let object = place
        .wait("photos", "suspended", |object| is_true(object, "Suspended"))
        .await;
    assert_eq!(condition(&object, "Ready"), Some("False"));
    eventually("no pod is left", async || {
        let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
        let is_quiet = jobs.items.iter().all(|job| {
            let active = job.status.as_ref().and_then(|status| status.active);
            job.spec.as_ref().unwrap().suspend == Some(true) && active.unwrap_or(0) == 0
        });
        is_quiet.then_some(())
    })
    .await;
    let started = pods.started();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(pods.started(), started);

    place
        .patch("photos", &json!({"spec": {"suspend": false}}))
        .await;
    pods.set_limit(4);
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    assert_eq!(shards(&place.output("photos")).len(), 12);
}

#[tokio::test]
async fn failed_shards_are_counted_listed_and_judged() {
    let Some(place) = Place::new("poison").await else {
        return;
    };
    let root = place.dataset("d", 30);
    let main: Vec<_> = shards(&root.join("main"));
    for (path, _) in main.iter().step_by(2) {
        std::fs::write(root.join("main").join(path), b"no parquet at all").unwrap();
    }
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let canary = json!({"shards": 0});
    let tolerant = json!({"canary": canary, "failurePolicy": {"maxFailedShards": 15}});
    place.create(&place.job("tolerant", &root, &tolerant)).await;
    place
        .create(&place.job("strict", &root, &json!({"canary": canary})))
        .await;

    let object = place.wait_for_end("tolerant").await;
    assert_eq!(reason(&object, "Ready"), Some("CompletedWithFailures"));
    assert_eq!(standing(&object), Standing::Current);
    let status = object.status.clone().unwrap();
    assert_eq!(status.shards.as_ref().unwrap().failed, 15);
    assert_eq!(status.shards.as_ref().unwrap().done, 15);
    assert_eq!(status.failures.len(), 10);
    assert!(status.failure_report.is_some());
    assert!(!place.output("tolerant").join("_SUCCESS").exists());

    let object = place.wait_for_end("strict").await;
    assert!(is_true(&object, "Failed"));
    assert_eq!(standing(&object), Standing::Failed);
    assert_eq!(
        shards(&place.output("strict")).len(),
        15,
        "the others are finished"
    );
    assert!(json!(object).to_string().len() < 32 * 1024);
}

/// Bytes that are no image cost their rows, which are told by their reason.
#[tokio::test]
async fn faults_of_rows_are_counted_by_reason() {
    let Some(place) = Place::new("faults").await else {
        return;
    };
    let root = place.dataset("d", 4);
    let operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let filters = json!({"columns": [], "pipeline": [{"computeFilters": {"filters": ["luma"]}}]});
    place.create(&place.job("photos", &root, &filters)).await;
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    let rows = object.status.unwrap().rows.unwrap().written;
    assert!(rows > 0);
    let ours = format!("namespace=\"{}\",reason=\"undecodable\"", place.namespace);
    let counted = operator.metric("sidecarjob_row_errors_total", &ours).await;
    assert_eq!(counted, Some(rows as f64));
    // Nobody is at work any more.
    let rate = "sidecarjob_observed_shards_per_second";
    assert_eq!(operator.metric(rate, "photos").await, Some(0.0));
}

#[tokio::test]
async fn an_object_that_can_not_be_read_stops_no_other() {
    let Some(place) = Place::new("invalid").await else {
        return;
    };
    let root = place.dataset("d", 2);
    // A later version of the operator may allow what this one can't read.
    crate::definition::with_wider_definition(&place, async || {
        let mut odd = json!(place.job("odd", &root, &json!({})));
        odd["spec"]["canary"] = json!({"shards": "a few"});
        crate::definition::create_raw(&place, &odd).await;
    })
    .await;
    let operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    for number in 0..10 {
        place
            .create(&place.job(&format!("good-{number}"), &root, &json!({})))
            .await;
    }
    for number in 0..10 {
        let object = place.wait_for_end(&format!("good-{number}")).await;
        assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    }
    operator.wait_for("leader").await;
    let invalid = operator
        .metric("sidecarjob_invalid_objects", "SidecarJob")
        .await;
    assert_eq!(invalid, Some(1.0));
    let events = place.events("odd").await;
    assert!(
        events.iter().any(|(reason, _)| reason == "InvalidObject"),
        "{events:?}"
    );

    // Once it can be read it goes on, without a restart.
    place
        .patch("odd", &json!({"spec": {"canary": {"shards": 1}}}))
        .await;
    let object = place.wait_for_end("odd").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    let invalid = operator
        .metric("sidecarjob_invalid_objects", "SidecarJob")
        .await;
    assert_eq!(invalid, Some(0.0));
}
