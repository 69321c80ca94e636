//! Two SidecarJobs that want one prefix.

use serde_json::json;

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::{counts, is_true, phase, words};
use crate::site::shared;

#[tokio::test]
async fn of_two_jobs_on_one_prefix_one_waits_and_starts_by_itself() {
    let _node = shared().await;
    let Some(place) = Place::new("writers", Place::SMALL).await else {
        return;
    };
    let first = place.join_job("first", &Place::slow());
    let witness = Witness::of(place.output("first"));
    place.create(&first).await;
    place.wait_for_shards("first", 1).await;
    let mut more = Place::slow();
    more["output"] = json!({"prefix": "s3://bucket/out/first/"});
    let second = place.join_job("second", &more);
    place.create(&second).await;
    let object = place
        .wait("second", "waiting", |object| {
            is_true(object, "OutputLocked")
        })
        .await;
    let (reason, message) = words(&object, "OutputLocked");
    assert_eq!(reason, "HeldByAnother");
    let holder = format!("{}/first", place.namespace);
    assert!(
        message.contains(&holder),
        "{message} does not name {holder}"
    );
    assert_eq!(phase(&object), "Pending");
    assert!(
        !is_true(&place.object("first").await, "Complete"),
        "it was too quick"
    );

    // All of the second's shards are the first's, and stay what they are.
    let object = place.wait_for_completion("second").await;
    assert!(is_true(&place.object("first").await, "Complete"));
    let found = counts(&object);
    let all = i64::try_from(Place::SMALL.shards).unwrap();
    assert_eq!((found.total, found.done, found.kept), (all, all, all));
    place.wait_until_whole(&first, witness).await;
}
