//! A run that nothing disturbs.

use harness::dataset::Shape;
use serde_json::json;

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::{is_true, phase};
use crate::site::shared;

#[tokio::test]
async fn a_thousand_shards_are_what_one_machine_makes() {
    let _node = shared().await;
    let shape = Shape {
        shards: 1200,
        ..Place::SMALL
    };
    let Some(place) = Place::new("whole", shape).await else {
        return;
    };
    let job = place.full_job("photos", &json!({}));
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(phase(&object), "Succeeded");
    assert!(is_true(&object, "CanaryPassed"));
    let told: Vec<String> = place.reasons("photos").await;
    for reason in [
        "RunStarted",
        "Planned",
        "CanaryPassed",
        "Verifying",
        "Completed",
    ] {
        assert!(told.iter().any(|told| told == reason), "{reason}: {told:?}");
    }
}
