//! Workers that fit on no node.

use serde_json::json;

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::{is_true, words};
use crate::site::shared;

#[tokio::test]
async fn workers_that_fit_nowhere_are_told_of_and_start_when_they_fit() {
    let _node = shared().await;
    let Some(place) = Place::new("room", Place::SMALL).await else {
        return;
    };
    let label = "sidecarjob.dev/end-to-end";
    let greedy = json!({"worker": {"resources": {"requests": {"cpu": "900"},
                                                 "limits": {"cpu": "900"}}}});
    let choosy = json!({"worker": {"nodeSelector": {label: place.namespace}}});
    let greedy = place.join_job("greedy", &greedy);
    let choosy = place.join_job("choosy", &choosy);
    let mut witnesses = Vec::new();
    for (job, scheduler) in [
        (&greedy, "Insufficient cpu"),
        (&choosy, "node affinity/selector"),
    ] {
        let name = job.metadata.name.as_deref().unwrap();
        witnesses.push(Witness::of(place.output(name)));
        place.create(job).await;
        let object = place
            .wait(name, "without room", |object| {
                is_true(object, "WorkersUnschedulable")
            })
            .await;
        let (reason, message) = words(&object, "WorkersUnschedulable");
        assert_eq!(reason, "Unschedulable");
        assert!(message.contains(scheduler), "{message}");
        assert!(is_true(&object, "Reconciling"));
    }

    // The one asks for less, the other gets a node.
    let less = json!({"requests": {"cpu": "20m"}, "limits": {"cpu": "1"}});
    let patch = json!({"spec": {"worker": {"resources": less}}});
    place.patch("greedy", &patch).await;
    let nodes = ["label", "nodes", "--all", "--overwrite"];
    let set = format!("{label}={}", place.namespace);
    place
        .cluster
        .kubectl(&[&nodes[..], &[&set]].concat())
        .unwrap();
    for (job, witness) in [&greedy, &choosy].into_iter().zip(witnesses) {
        let object = place.wait_until_whole(job, witness).await;
        assert!(!is_true(&object, "WorkersUnschedulable"));
        for batch in object.status.unwrap().batches {
            assert_eq!(batch.attempt, 1, "{batch:?}");
        }
    }
    let unset = format!("{label}-");
    place
        .cluster
        .kubectl(&[&nodes[..], &[&unset]].concat())
        .unwrap();
}
