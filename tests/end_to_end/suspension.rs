//! A run that somebody suspends and resumes.

use kube::api::ListParams;
use serde_json::json;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::{is_true, phase};
use crate::site::shared;

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
    eventually("no worker is left", async || {
        let pods = place.pods().list(&ListParams::default()).await.unwrap();
        pods.items.is_empty().then_some(())
    })
    .await;
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
