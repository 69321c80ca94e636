//! A run that somebody suspends and resumes.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::json;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::{is_true, phase};
use crate::site::shared;

/// Pods of finished items may stay.
async fn wait_for_no_worker(place: &Place) {
    eventually("no worker is left", async || {
        let pods = place.pods().list(&ListParams::default()).await.unwrap();
        let has_ended = |pod: &Pod| {
            let phase = pod.status.as_ref()?.phase.as_deref();
            phase.map(|phase| ["Succeeded", "Failed"].contains(&phase))
        };
        let has_no_worker = pods.items.iter().all(|pod| has_ended(pod) == Some(true));
        has_no_worker.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_suspended_run_stands_still_and_goes_on() {
    let _node = shared().await;
    let Some(place) = Place::new("suspend", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    place
        .patch("photos", &json!({"spec": {"suspend": true}}))
        .await;
    let object = place
        .wait("photos", "suspended", |object| is_true(object, "Suspended"))
        .await;
    assert_eq!(phase(&object), "Suspended");
    wait_for_no_worker(&place).await;
    let before = place.shards("photos").len();
    assert!(before < Place::SMALL.shards, "it was too quick");
    // Whoever looks at it, nothing is started.
    let changed = place
        .patch(
            "photos",
            &json!({"spec": {"throughput": {"maxWorkers": 3}}}),
        )
        .await;
    place
        .wait("photos", "looked at", |object| {
            let status = object.status.as_ref();
            status.and_then(|status| status.observed_generation) == changed.metadata.generation
        })
        .await;
    assert!(place.running().await.is_empty());
    assert_eq!(place.shards("photos").len(), before);

    place
        .patch("photos", &json!({"spec": {"suspend": false}}))
        .await;
    let object = place.wait_until_whole(&job, witness).await;
    assert!(!is_true(&object, "Suspended"));
}

/// Pods that the Job controller ends itself exit 143, and nobody is to blame for that.
#[tokio::test]
async fn three_suspensions_cost_no_attempt() {
    let _node = shared().await;
    let Some(place) = Place::new("suspend-thrice", Place::SMALL).await else {
        return;
    };
    let mut strict = Place::slow();
    strict["failurePolicy"] = json!({"retriesPerChunk": 0});
    let job = place.join_job("photos", &strict);
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    for _ in 0..3 {
        place.wait_for_worker().await;
        let there = place.shards("photos").len();
        place.wait_for_shards("photos", there + 4).await;
        // The worker is in the middle of something.
        place.wait_for_worker().await;
        place
            .patch("photos", &json!({"spec": {"suspend": true}}))
            .await;
        wait_for_no_worker(&place).await;
        assert!(
            place.shards("photos").len() < Place::SMALL.shards,
            "it was too quick"
        );
        place
            .patch("photos", &json!({"spec": {"suspend": false}}))
            .await;
    }
    let object = place.wait_until_whole(&job, witness).await;
    for batch in object.status.unwrap().batches {
        assert_eq!((batch.attempt, batch.failed), (1, 0), "{batch:?}");
    }
    let reasons = place.reasons("photos").await;
    assert!(
        !reasons.iter().any(|reason| reason.contains("Retr")),
        "{reasons:?}"
    );
}
