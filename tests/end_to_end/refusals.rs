//! Workers that somebody refuses: the API server, for one reason or another, or the kubelet.

use serde_json::{Value, json};

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::sidecar_jobs::{is_true, message, words};
use crate::site::shared;

/// Pods of the namespace may have no more CPU than this, and none with this annotation comes in.
async fn forbid(place: &Place, cpu: &str, annotation: &str) {
    let name = &place.namespace;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                    "operations": ["CREATE"],
                }],
            },
            "validations": [{
                "expression": format!(
                    "!('{annotation}' in object.metadata.?annotations.orValue({{}}))"
                ),
                "message": "such pods are against the rules of the house",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let range = json!({
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "narrow", "namespace": name},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": cpu}}]},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding, range]});
    place.apply(&list).await;
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "try", "namespace": name, "annotations": {annotation: ""}},
        "spec": {"containers": [{"name": "try", "image": "try",
                                 "resources": {"limits": {"cpu": "10m"}}}]},
    });
    let file = place.file("try.json", &pod);
    let create = ["create", "--dry-run=server", "-f", &file];
    eventually("the policy holds", async || {
        let refused = place.cluster.kubectl(&create).err()?;
        refused
            .to_string()
            .contains("rules of the house")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn workers_that_are_refused_say_by_whom_and_start_with_a_corrected_spec() {
    let _node = shared().await;
    let Some(place) = Place::new("refusals", Place::SMALL).await else {
        return;
    };
    let annotation = "sidecarjob.dev/forbidden";
    forbid(&place, "1500m", annotation).await;
    // What is wrong, what is said of it, and what makes it right.
    let cases: [(&str, Value, &str, &str, Value); 5] = [
        (
            "account",
            json!({"serviceAccountName": "nobody"}),
            "FailedCreate",
            "serviceaccount \"nobody\" not found",
            json!({"serviceAccountName": null}),
        ),
        (
            "class",
            json!({"priorityClassName": "nobody"}),
            "FailedCreate",
            "no PriorityClass with name nobody was found",
            json!({"priorityClassName": null}),
        ),
        (
            "range",
            json!({"resources": {"limits": {"cpu": "2"}}}),
            "FailedCreate",
            "maximum cpu usage per Container is 1500m",
            json!({"resources": {"limits": {"cpu": "1"}}}),
        ),
        (
            "policy",
            json!({"podAnnotations": {annotation: "yes"}}),
            "FailedCreate",
            "such pods are against the rules of the house",
            json!({"podAnnotations": null}),
        ),
        (
            "image",
            json!({"image": "registry.invalid/nothing:1"}),
            "CannotStart",
            "registry.invalid/nothing:1",
            json!({"image": null}),
        ),
    ];
    let mut runs = Vec::new();
    for (name, wrong, ..) in &cases {
        let job = place.join_job(name, &json!({"worker": wrong}));
        let witness = Witness::of(place.output(name));
        place.create(&job).await;
        runs.push((job, witness));
    }
    for (name, _, reason, said, right) in &cases {
        let object = place
            .wait(name, "refused", |object| {
                is_true(object, "WorkersUnschedulable")
            })
            .await;
        let (found, text) = words(&object, "WorkersUnschedulable");
        assert_eq!(found, *reason, "{name}: {text}");
        assert!(text.contains(said), "{name}: {text}");
        assert!(message(&object).contains(said), "{}", message(&object));
        let patch = json!({"spec": {"worker": right}});
        place.patch(name, &patch).await;
    }
    for (job, witness) in runs {
        let object = place.wait_until_whole(&job, witness).await;
        assert!(!is_true(&object, "WorkersUnschedulable"));
        for batch in object.status.unwrap().batches {
            assert_eq!((batch.attempt, batch.failed), (1, 0), "{batch:?}");
        }
    }
}
