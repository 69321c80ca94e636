//! The small run before the large one.

use serde_json::json;

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::{counts, is_true, words};
use crate::site::shared;

#[tokio::test]
async fn a_canary_that_finds_too_little_stops_the_run() {
    let _node = shared().await;
    let Some(place) = Place::new("canary", Place::SMALL).await else {
        return;
    };
    let more = json!({"canary": {"shards": 8, "minMatchRate": 0.95}});
    let job = place.join_job("photos", &more);
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Failed"), "{:#}", json!(object.status));
    let (reason, message) = words(&object, "CanaryPassed");
    assert_eq!(reason, "CanaryRejected");
    assert!(message.contains("95.00%"), "{message}");
    let rate = object.status.as_ref().unwrap().canary.as_ref().unwrap();
    let percent = format!(
        "only {:.2}% of the rows matched",
        100.0 * rate.match_rate.unwrap()
    );
    assert!(message.contains(&percent), "{message}, not {percent}");
    assert_eq!(place.shards("photos").len(), 8, "the spend ends there");
    place.wait_for_no_job().await;

    // What it found was right after all.
    let patch = json!({
        "metadata": {"annotations": {"sidecarjob.dev/rerun-requested-at": "1"}},
        "spec": {"canary": {"minMatchRate": 0.2}},
    });
    place.patch("photos", &patch).await;
    place
        .wait("photos", "in its second run", |object| {
            !is_true(object, "Failed")
        })
        .await;
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(counts(&object).kept, 8);
}
