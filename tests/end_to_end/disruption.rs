//! Pods that somebody asks to leave.

use kube::api::EvictParams;
use serde_json::json;

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::{is_true, words};
use crate::site::{alone, shared};

/// No attempt was lost: whoever had to leave was replaced within its Job.
async fn assert_one_attempt(place: &Place, name: &str) {
    let object = place.object(name).await;
    for batch in &object.status.unwrap().batches {
        assert_eq!((batch.attempt, batch.failed), (1, 0), "{batch:?}");
    }
    let told = place.reasons(name).await;
    assert!(!told.contains(&"BatchRetried".to_owned()), "{told:?}");
}

#[tokio::test]
async fn an_evicted_pod_costs_no_attempt() {
    let _node = shared().await;
    let Some(place) = Place::new("evicted", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    for shards in [8, 40, 80] {
        place.wait_for_shards("photos", shards).await;
        let pod = place.wait_for_worker().await;
        // It may have ended by itself meanwhile.
        let _ = place.pods().evict(&pod, &EvictParams::default()).await;
    }
    place.wait_until_whole(&job, witness).await;
    assert_one_attempt(&place, "photos").await;
}

#[tokio::test]
async fn a_drained_node_costs_no_attempt() {
    let _node = alone().await;
    let Some(place) = Place::new("drained", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let nodes = place
        .cluster
        .kubectl(&["get", "nodes", "--output", "name"])
        .unwrap();
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    let workers = "--pod-selector=app.kubernetes.io/name=sidecarjob-worker";
    for node in &nodes {
        place
            .cluster
            .kubectl(&["drain", node, "--force", "--delete-emptydir-data", workers])
            .unwrap();
    }
    let object = place
        .wait("photos", "without a node", |object| {
            is_true(object, "WorkersUnschedulable")
        })
        .await;
    let (_, message) = words(&object, "WorkersUnschedulable");
    assert!(message.contains("unschedulable"), "{message}");
    for node in &nodes {
        place.cluster.kubectl(&["uncordon", node]).unwrap();
    }
    let object = place.wait_until_whole(&job, witness).await;
    assert!(
        !is_true(&object, "WorkersUnschedulable"),
        "{:#}",
        json!(object.status)
    );
    assert_one_attempt(&place, "photos").await;
}
