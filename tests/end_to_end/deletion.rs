//! A SidecarJob that is deleted while it runs.

use harness::dataset::Shape;
use kube::api::{DeleteParams, ListParams};
use serde_json::Value;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::counts;
use crate::site::shared;

/// More than are in hand when it is deleted.
const SHAPE: Shape = Shape {
    shards: 500,
    ..Place::SMALL
};

#[tokio::test]
async fn a_deleted_job_takes_its_pods_along_and_leaves_its_shards() {
    let _node = shared().await;
    let Some(place) = Place::new("deletion", SHAPE).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 10).await;
    let parameters = DeleteParams::default();
    place.objects().delete("photos", &parameters).await.unwrap();
    place.wait_for_no_job().await;
    eventually("no pod is left", async || {
        let pods = place.pods().list(&ListParams::default()).await.unwrap();
        pods.items.is_empty().then_some(())
    })
    .await;
    eventually("the lock is given up", async || {
        let lock = place.read("s3://bucket/out/photos/_sidecar/writer.json");
        let lock: Value = serde_json::from_str(&lock).unwrap();
        (lock["state"] == "released").then_some(())
    })
    .await;
    let left = place.shards("photos").len();
    assert!((10..SHAPE.shards).contains(&left), "{left}");
    assert!(!place.output("photos").join("_SUCCESS").exists());

    // Applied again, it goes on.
    place.create(&job).await;
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(counts(&object).kept, i64::try_from(left).unwrap());
}
