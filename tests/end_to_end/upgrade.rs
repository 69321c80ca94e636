//! The operator and the default worker image are upgraded.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::is_true;
use crate::site::{SYSTEM, alone};

/// No node has it: only a Job's template tells of it.
const NEXT: &str = "localhost/sidecarjob-worker:next";

fn image(job: &Job) -> Option<&str> {
    let template = &job.spec.as_ref()?.template;
    let container = template.spec.as_ref()?.containers.first()?;
    container.image.as_deref()
}

/// The images of the worker in the Jobs of an object.
async fn images(place: &Place, name: &str) -> Vec<String> {
    let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
    let ours = jobs.items.iter().filter(|job| {
        let owners = job.owner_references();
        owners.iter().any(|owner| owner.name == name)
    });
    ours.filter_map(|job| image(job).map(str::to_owned))
        .collect()
}

async fn run(place: &Place, name: &str) -> String {
    let status = place.object(name).await.status.unwrap();
    status.run.unwrap().name
}

/// Rolls the operator out anew with another default image, and waits for the new one alone.
fn roll_out(place: &Place, image: &str) {
    let variable = format!("SIDECARJOB_WORKER_IMAGE={image}");
    let deployment = ["deployment/sidecarjob-operator", "--namespace", SYSTEM];
    let set = [&["set", "env"], &deployment[..], &[variable.as_str()]].concat();
    let status = ["rollout", "status", "--timeout=120s"];
    let status = [&status[..], &deployment[..]].concat();
    for command in [set, status] {
        place.cluster.kubectl(&command).unwrap();
    }
}

#[tokio::test]
async fn runs_live_through_an_upgrade_and_ended_ones_stay_ended() {
    let _node = alone().await;
    let Some(place) = Place::new("upgrade", Place::SMALL).await else {
        return;
    };
    for policy in ["Reject", "Rerun"] {
        let name = format!("ended-{}", policy.to_lowercase());
        let few = json!({"onSpecChange": policy, "canary": {"shards": 0}});
        place.create(&place.join_job(&name, &few)).await;
    }
    let mut ended = Vec::new();
    for name in ["ended-reject", "ended-rerun"] {
        place.wait_for_completion(name).await;
        ended.push((name, run(&place, name).await));
    }
    let mut live = Vec::new();
    for policy in ["Reject", "Rerun"] {
        let name = format!("live-{}", policy.to_lowercase());
        let mut slow = Place::slow();
        slow["onSpecChange"] = policy.into();
        let job = place.join_job(&name, &slow);
        let witness = Witness::of(place.output(&name));
        place.create(&job).await;
        live.push((job, witness, name));
    }
    let mut before = Vec::new();
    for (_, _, name) in &live {
        place.wait_for_shards(name, 8).await;
        let images = images(&place, name).await;
        before.push((run(&place, name).await, images[0].clone()));
    }

    roll_out(&place, NEXT);
    // What begins now has the new image: the new operator leads.
    let later = place.join_job("later", &json!({"canary": {"shards": 0}}));
    place.create(&later).await;
    eventually("a Job of the new image", async || {
        let images = images(&place, "later").await;
        images.iter().any(|image| image == NEXT).then_some(())
    })
    .await;
    for (_, _, name) in &live {
        assert!(
            place.shards(name).len() < Place::SMALL.shards,
            "{name} was too quick"
        );
    }
    for ((job, witness, name), (run_before, image_before)) in live.into_iter().zip(before) {
        eventually("its end", async || {
            for image in images(&place, &name).await {
                assert_eq!(image, image_before, "{name}");
            }
            let object = place.object(&name).await;
            is_true(&object, "Complete").then_some(())
        })
        .await;
        place.wait_until_whole(&job, witness).await;
        assert_eq!(run(&place, &name).await, run_before, "{name}");
    }
    for (name, run_before) in ended {
        assert_eq!(run(&place, name).await, run_before);
        assert!(is_true(&place.object(name).await, "Complete"), "{name}");
        assert!(images(&place, name).await.iter().all(|image| image != NEXT));
    }
    place
        .objects()
        .delete("later", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    roll_out(&place, "sidecarjob-worker:0.1.0");
}
