//! An S3 server that goes away for a while.

use crate::outputs::Witness;
use crate::place::Place;
use crate::sidecar_jobs::words;
use crate::site::shared;

#[tokio::test]
async fn a_store_that_is_away_delays_the_run_and_no_more() {
    let _node = shared().await;
    let Some(place) = Place::new("away", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let run = place.object("photos").await.status.unwrap().run.unwrap();
    place.server.kill();
    // As long as it takes until the operator has tried often enough to say so.
    let object = place
        .wait("photos", "in trouble", |object| {
            words(object, "Reconciling").0 == "ProgressingWithRetry"
        })
        .await;
    let (_, message) = words(&object, "Reconciling");
    assert!(message.contains("trying again"), "{message}");
    place.server.restart().unwrap();
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(object.status.unwrap().run.unwrap().name, run.name);
}
