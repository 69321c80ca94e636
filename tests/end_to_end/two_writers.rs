//! Two SidecarJobs that want one prefix.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::outputs::Witness;
use crate::place::{Place, eventually};
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

/// A holder that believes the lock to be free takes it over under a run, and disappears.
#[tokio::test]
async fn a_run_whose_lock_is_taken_over_stops_and_goes_on_when_it_is_free() {
    let _node = shared().await;
    let Some(place) = Place::new("usurper", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let before = place.object("photos").await.status.unwrap().run.unwrap();
    let lock = "out/photos/_sidecar/writer.json";
    place
        .replace(lock, |bytes| {
            let mut lock: Value = serde_json::from_slice(bytes).unwrap();
            let expires = Timestamp::now() + SignedDuration::from_secs(20);
            lock["holder"]["name"] = "laptop".into();
            lock["holder"]["instance"] = "another".into();
            lock["epoch"] = (lock["epoch"].as_i64().unwrap() + 1).into();
            lock["expires_at"] = expires.to_string().into();
            lock.to_string().into_bytes()
        })
        .await;
    eventually("it is told", async || {
        let told = place.reasons("photos").await;
        told.contains(&"LockLost".to_owned()).then_some(())
    })
    .await;
    place.wait_for_no_job().await;
    let left = place.shards("photos").len();
    assert!(left < Place::SMALL.shards, "it was too quick");
    let object = place.wait_until_whole(&job, witness).await;
    let after = object.status.unwrap().run.unwrap();
    assert_eq!(after.name, before.name, "the same run");
    assert!(after.epoch > before.epoch);
}
