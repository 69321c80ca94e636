//! Workers that need more memory than they may have.

use harness::dataset::Shape;
use serde_json::{Value, json};

use crate::outputs::Witness;
use crate::place::Place;
use crate::site::shared;

fn limited(memory: &str) -> Value {
    json!({
        "canary": {"shards": 0},
        "throughput": {"maxWorkers": 2},
        "worker": {"resources": {"requests": {"memory": "8Mi"}, "limits": {"memory": memory}}},
    })
}

#[tokio::test]
async fn a_worker_that_lacks_memory_goes_on_with_more() {
    let _node = shared().await;
    // Row groups that take some megabytes.
    let shape = Shape {
        shards: 3,
        rows: 20_000,
        group_rows: 20_000,
        image_bytes: 1,
    };
    let Some(place) = Place::new("memory", shape).await else {
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
