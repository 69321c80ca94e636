//! Pods that neither work nor end.

use harness::dataset::Shape;
use harness::tool::skip;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::late_worker::process_of;
use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::site::shared;

#[tokio::test]
async fn a_worker_that_hangs_is_told_of_and_replaced() {
    let _node = shared().await;
    let Some(place) = Place::new("silent", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("only processes of this machine can be stopped");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let stopped = eventually("a worker in the middle of its item", async || {
        if place.shards("photos").len() < 4 {
            return None;
        }
        let pod = place.running().await.pop()?;
        kill_process(process_of(&pod)?, Signal::STOP).ok()?;
        pod.metadata.uid
    })
    .await;
    let events = place.events("photos").await;
    assert!(!events.iter().any(|(reason, _)| reason == "WorkerSilent"));
    eventually("it is told of", async || {
        let events = place.events("photos").await;
        events
            .into_iter()
            .find(|(reason, _)| reason == "WorkerSilent")
    })
    .await;
    place.wait_until_whole(&job, witness).await;
    let pods = place.pods().list(&Default::default()).await.unwrap();
    let stands_still = pods.items.iter().any(|pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        pod.metadata.uid.as_ref() == Some(&stopped) && phase == Some("Running")
    });
    assert!(!stands_still);
}

/// As a mesh does it whose proxy is none of Kubernetes' own sidecars.
#[tokio::test]
async fn a_container_that_somebody_injects_holds_no_run_up() {
    let _node = shared().await;
    // Few items, since the next ones wait until what was injected beside the first has been ended.
    let shape = Shape {
        shards: 4,
        ..Place::SMALL
    };
    let Some(place) = Place::new("outlived", shape).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("the image of what is injected is known on nodes of the tests alone");
    }
    let name = &place.namespace;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                    "operations": ["CREATE"],
                }],
            },
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/containers/-', \
                    value: Object.spec.containers{name: 'proxy', image: 'localhost/pause:local', \
                    imagePullPolicy: 'Never'}}]"},
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
    place.apply(&list).await;
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "try", "namespace": name},
        "spec": {"containers": [{"name": "try", "image": "try"}]},
    });
    let file = place.file("try.json", &pod);
    let create = ["create", "--dry-run=server", "--output=json", "-f", &file];
    eventually("the policy holds", async || {
        let pod = place.cluster.kubectl(&create).unwrap();
        pod.contains("\"proxy\"").then_some(())
    })
    .await;

    let spread = json!({"canary": {"shards": 0}, "throughput": {"maxWorkers": 2}});
    let job = place.join_job("photos", &spread);
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let object = place.wait_until_whole(&job, witness).await;
    // A worker that has done its work is not started again.
    let batches = object.status.unwrap().batches;
    for batch in &batches {
        assert_eq!((batch.attempt, batch.done), (1, batch.chunks), "{batch:?}");
    }
    let items: i64 = batches.iter().map(|batch| i64::from(batch.chunks)).sum();
    let created = [
        "get",
        "events",
        "--namespace",
        name,
        "--output=name",
        "--field-selector=reason=SuccessfulCreate,involvedObject.kind=Job",
    ];
    let created = place.cluster.kubectl(&created).unwrap();
    assert_eq!(created.lines().count() as i64, items, "{created}");
    let events = place.events("photos").await;
    let told = events.iter().find(|(reason, _)| reason == "WorkerOutlived");
    let told = told.unwrap_or_else(|| panic!("{events:?}"));
    assert!(told.1.contains("proxy"), "{told:?}");
}
