//! Workers that need more memory than they may have.

use harness::dataset::Shape;
use serde_json::{Value, json};

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::{counts, words};
use crate::site::shared;

fn limited(memory: &str) -> Value {
    json!({
        "canary": {"shards": 0},
        "throughput": {"maxWorkers": 2},
        "worker": {"resources": {"requests": {"memory": "8Mi"}, "limits": {"memory": memory}}},
    })
}

/// Row groups that take some megabytes.
const LARGE: Shape = Shape {
    shards: 3,
    rows: 20_000,
    group_rows: 20_000,
    image_bytes: 1,
};

#[tokio::test]
async fn a_worker_that_lacks_memory_goes_on_with_more() {
    let _node = shared().await;
    let Some(place) = Place::new("memory", LARGE).await else {
        return;
    };
    let job = place.join_job("photos", &limited("16Mi"));
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place
        .wait("photos", "known to lack memory", |object| {
            let status = object.status.as_ref();
            let message = status.and_then(|status| status.message.as_deref());
            message.is_some_and(|message| message.contains("OOMKilled (exit 137)"))
        })
        .await;
    place
        .patch("photos", &json!({"spec": limited("256Mi")}))
        .await;
    place.wait_until_whole(&job, witness).await;
}

#[tokio::test]
async fn work_that_dies_as_often_as_it_may_is_given_up_with_the_reason() {
    let _node = shared().await;
    let Some(place) = Place::new("given-up", LARGE).await else {
        return;
    };
    let mut strict = limited("16Mi");
    strict["failurePolicy"] = json!({"retriesPerChunk": 0});
    place.create(&place.join_job("photos", &strict)).await;
    let object = place.wait_for_end("photos").await;
    assert_eq!(words(&object, "Failed").0, "TooManyFailedShards");
    // A worker may have been lucky with one.
    let failed = counts(&object).failed;
    let failures = object.status.unwrap().failures;
    assert!(failed > 0);
    assert_eq!(failures.len() as i64, failed, "{failures:?}");
    for failure in failures {
        assert!(failure.reason.contains("OOMKilled"), "{failure:?}");
    }
    let told = place.reasons("photos").await;
    assert!(told.contains(&"BatchGaveUp".to_owned()), "{told:?}");
}
