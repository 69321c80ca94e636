//! A quota that has no room for workers.

use serde_json::json;

use crate::outputs::Witness;
use crate::place::{LIMIT, Place};
use crate::sidecar_jobs::{is_true, limit_pods, words};
use crate::site::shared;

async fn quota(place: &Place, pods: &str) {
    limit_pods(&place.client, &place.namespace, LIMIT, pods).await;
}

#[tokio::test]
async fn workers_that_a_quota_refuses_are_told_of_and_start_once_it_is_raised() {
    let _node = shared().await;
    let Some(place) = Place::new("quota", Place::SMALL).await else {
        return;
    };
    quota(&place, "0").await;
    let job = place.join_job("photos", &json!({}));
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let object = place
        .wait("photos", "refused", |object| {
            is_true(object, "WorkersUnschedulable")
        })
        .await;
    let (reason, message) = words(&object, "WorkersUnschedulable");
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("exceeded quota: few"), "{message}");
    let table = place
        .cluster
        .kubectl(&["get", "sj", "photos", "--namespace", &place.namespace])
        .unwrap();
    assert!(table.contains("exceeded quota: few"), "{table}");

    quota(&place, "20").await;
    let object = place.wait_until_whole(&job, witness).await;
    assert!(!is_true(&object, "WorkersUnschedulable"));
    for batch in object.status.unwrap().batches {
        assert_eq!(batch.attempt, 1, "{batch:?}");
    }
}
