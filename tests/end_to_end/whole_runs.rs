//! Runs that nothing disturbs.

use harness::dataset::Shape;
use serde_json::json;

use crate::outputs::{Witness, assert_same};
use crate::place::Place;
use crate::site::shared;
use crate::standing::{counts, is_true, phase};

#[tokio::test]
async fn a_thousand_shards_are_what_one_machine_makes() {
    let _node = shared().await;
    let shape = Shape {
        shards: 1200,
        rows: 6,
        group_rows: 4,
        image_bytes: 32,
    };
    let Some(place) = Place::new("whole", shape).await else {
        return;
    };
    let job = place.full_job("photos", &json!({}));
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let object = place.wait_for_completion("photos").await;
    witness.testify();
    assert_eq!(phase(&object), "Succeeded");
    assert!(is_true(&object, "CanaryPassed"));
    let counts = counts(&object);
    assert_eq!((counts.total, counts.done, counts.failed), (1200, 1200, 0));
    assert_same(&place.shards("photos"), &place.of_one_machine(&job));
}
