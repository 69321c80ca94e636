//! What the real kubelet, Job controller and namespace controller make of what a tenant may do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::outputs::{self, assert_same};
use crate::place::{Place, eventually};
use crate::sidecar_jobs::is_true;
use crate::site::shared;

/// The same scene as `operator_api` plays with a kubelet of its own, but with the secret itself.
#[tokio::test]
async fn a_prefix_with_dollars_reaches_the_workers_as_it_is() {
    let _node = shared().await;
    let Some(place) = Place::new("dollars", Place::SMALL).await else {
        return;
    };
    let name = "a$(AWS_SECRET_ACCESS_KEY)b$$(AWS_SECRET_ACCESS_KEY)c$d$$e$(NOBODY)";
    let spec = json!({
        "output": {"prefix": format!("s3://bucket/out/{name}/")}, "canary": {"shards": 0},
    });
    let job = place.join_job("dollars", &spec);
    place.create(&job).await;
    let object = place.wait_for_completion("dollars").await;
    let shards = outputs::shards(&place.output(name));
    assert_same(&shards, &place.of_one_machine(&job));
    // What one machine has made may be beside it; else there is nothing.
    let mut folders: BTreeSet<String> = names(&place.output("")).into_iter().collect();
    folders.remove("expected");
    assert_eq!(folders, BTreeSet::from([name.to_owned()]));
    let status = json!(object.status).to_string();
    assert!(!status.contains(place.server.secret_key()), "{status}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| PathBuf::from(entry.unwrap().file_name()));
    paths.map(|path| path.display().to_string()).collect()
}

/// Pods go first, and of those the Job controller keeps the ended ones until others are in their
/// place: which the namespace no longer takes.
#[tokio::test]
async fn a_namespace_is_deleted_under_a_run() {
    let _node = shared().await;
    let Some(place) = Place::new("going", Place::SMALL).await else {
        return;
    };
    place
        .create(&place.join_job("photos", &Place::slow()))
        .await;
    place.wait_for_shards("photos", 10).await;
    place.wait_for_worker().await;
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    let parameters = DeleteParams::default();
    namespaces
        .delete(&place.namespace, &parameters)
        .await
        .unwrap();
    eventually("the namespace is gone", async || {
        let found = namespaces.get_opt(&place.namespace).await.unwrap();
        found.is_none().then_some(())
    })
    .await;
    eventually("the lock is given up", async || {
        let lock = place.read("s3://bucket/out/photos/_sidecar/writer.json");
        let lock: Value = serde_json::from_str(&lock).unwrap();
        (lock["state"] == "released").then_some(())
    })
    .await;
    assert!(place.shards("photos").len() < Place::SMALL.shards);
}

/// Somebody in another namespace gives their Job labels and owner of this namespace's object, and
/// the name of somebody's Job here.
#[tokio::test]
async fn a_forged_owner_reference_changes_nothing() {
    let _node = shared().await;
    let Some(place) = Place::new("forged", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    place.create(&job).await;
    place.wait_for_shards("photos", 5).await;
    let object = place.object("photos").await;
    let plain = |metadata: Value| -> Job {
        let container = json!({"name": "worker", "image": "localhost/none:1"});
        let job = json!({
            "metadata": metadata,
            "spec": {"suspend": true, "template": {"spec": {
                "restartPolicy": "Never", "containers": [container],
            }}},
        });
        serde_json::from_value(job).unwrap()
    };
    let parameters = PostParams::default();
    let bystander = plain(json!({"name": "nightly"}));
    place.jobs().create(&parameters, &bystander).await.unwrap();
    let there = format!("{}-forger", place.namespace);
    let namespace = json!({"metadata": {"name": there}});
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&parameters, &namespace).await.unwrap();
    let forgery = plain(json!({
        "name": "nightly",
        "labels": {
            "sidecarjob.dev/job-uid": object.uid(),
            "sidecarjob.dev/run": object.status.clone().unwrap().run.unwrap().name,
            "sidecarjob.dev/batch": "999", "sidecarjob.dev/attempt": "1",
            "sidecarjob.dev/epoch": "1",
        },
        "ownerReferences": [{
            "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
            "name": "photos", "uid": object.uid(), "controller": true,
        }],
    }));
    let jobs: Api<Job> = Api::namespaced(place.client.clone(), &there);
    jobs.create(&parameters, &forgery).await.unwrap();
    // Long enough for the operator to have looked at the object again and again.
    let done = place.shards("photos").len();
    place.wait_for_shards("photos", done + 40).await;
    let left = place.jobs().get("nightly").await.unwrap();
    assert!(left.metadata.deletion_timestamp.is_none());
    let object = place.wait_for_completion("photos").await;
    assert!(is_true(&object, "Complete"));
    assert_same(&place.shards("photos"), &place.of_one_machine(&job));
    place.jobs().get("nightly").await.unwrap();
    let parameters = DeleteParams::default();
    namespaces.delete(&there, &parameters).await.unwrap();
}
