//! A queue that says when Jobs may run.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::site::shared;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

async fn jobs(place: &Place) -> Vec<Job> {
    place
        .jobs()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

#[tokio::test]
async fn jobs_wait_until_their_queue_admits_them() {
    let _node = shared().await;
    let Some(place) = Place::new("queue", Place::SMALL).await else {
        return;
    };
    let more = json!({"queue": "team", "canary": {"shards": 6}});
    let job = place.join_job("photos", &more);
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let first = eventually("the canary's Job", async || jobs(&place).await.pop()).await;
    assert!(is_suspended(&first));
    assert_eq!(first.labels()[QUEUE], "team");

    // A look at the object, for whatever reason, does not let it go.
    let changed = place
        .patch(
            "photos",
            &json!({"spec": {"throughput": {"maxWorkers": 3}}}),
        )
        .await;
    place
        .wait("photos", "looked at", |object| {
            let status = object.status.as_ref();
            status.and_then(|status| status.observed_generation) == changed.metadata.generation
        })
        .await;
    let waiting = jobs(&place).await;
    assert_eq!(waiting.len(), 1);
    assert!(is_suspended(&waiting[0]));
    assert!(place.shards("photos").is_empty());

    // The queue admits one after the other.
    let mut admitted = Vec::new();
    eventually("the run is over", async || {
        for job in jobs(&place).await {
            if is_suspended(&job) {
                let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
                let name = job.name_any();
                let parameters = PatchParams::default();
                if place.jobs().patch(&name, &parameters, &patch).await.is_ok() {
                    assert!(!admitted.contains(&name), "{name} was suspended again");
                    admitted.push(name);
                }
            }
        }
        let object = place.object("photos").await;
        crate::sidecar_jobs::is_true(&object, "Complete").then_some(())
    })
    .await;
    assert!(admitted.len() >= 2, "canary and bulk: {admitted:?}");
    place.wait_until_whole(&job, witness).await;
}
