//! Jobs that the operator may not make: by a rule of the house, or since another has the name.

use harness::dataset::Shape;
use serde_json::{Value, json};

use crate::place::{Place, eventually};
use crate::sidecar_jobs::{is_true, words};
use crate::site::{SYSTEM, shared};

/// A rule by which the operator makes no Job in the namespace.
fn rule(namespace: &str) -> Value {
    let operator = format!("system:serviceaccount:{SYSTEM}:sidecarjob-operator");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{
                    "apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"],
                    "operations": ["CREATE"],
                }],
            },
            "validations": [{
                "expression": format!("request.userInfo.username != '{operator}'"),
                "reason": "Forbidden",
                "message": "no Jobs at the weekend",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {"policyName": namespace, "validationActions": ["Deny"]},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]})
}

fn foreign_job(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "other", "image": "other"}],
        }}},
    })
}

#[tokio::test]
async fn a_job_that_may_not_be_made_is_told_of_and_made_when_it_may() {
    let _node = shared().await;
    let few = Shape {
        shards: 3,
        ..Place::SMALL
    };
    let Some(place) = Place::new("forbidden", few).await else {
        return;
    };
    let namespace = place.namespace.as_str();
    place.apply(&rule(namespace)).await;
    let try_it = place.file("try.json", &foreign_job("try", namespace));
    let user = format!("--as=system:serviceaccount:{SYSTEM}:sidecarjob-operator");
    let create = ["create", "--dry-run=server", &user, "-f", &try_it];
    eventually("the rule holds", async || {
        let refused = place.cluster.kubectl(&create).err()?;
        refused.to_string().contains("weekend").then_some(())
    })
    .await;

    // Without a prefix of its own the sidecar goes beside main, and that is said.
    let job = place.join_job("photos", &json!({"output": {"prefix": null}}));
    place.create(&job).await;
    let stalled = |reason: &'static str| {
        move |object: &crds::SidecarJob| words(object, "Stalled").0 == reason
    };
    let object = place
        .wait("photos", "forbidden", stalled("Forbidden"))
        .await;
    let said = words(&object, "Stalled").1;
    assert!(said.contains("no Jobs at the weekend"), "{said}");
    let is_separator = |letter: char| !letter.is_ascii_alphanumeric() && letter != '-';
    let mut names = said.split(is_separator);
    let name = names.find(|word| word.starts_with("photos-")).unwrap();

    // Somebody else takes the name meanwhile, and nobody touches theirs.
    place.apply(&foreign_job(name, namespace)).await;
    let binding = ["delete", "validatingadmissionpolicybinding", namespace];
    place.cluster.kubectl(&binding).unwrap();
    let object = place
        .wait("photos", "in doubt", stalled("ForeignJob"))
        .await;
    assert!(words(&object, "Stalled").1.contains(name));
    let delete = ["delete", "job", name, "--namespace", namespace];
    place.cluster.kubectl(&delete).unwrap();
    let object = place.wait_for_completion("photos").await;
    assert!(!is_true(&object, "Stalled"));
    let told = place.events("photos").await;
    let chosen = told.iter().find(|(reason, _)| reason == "OutputChosen");
    let output = object.status.unwrap().output.unwrap();
    let (_, chosen) = chosen.unwrap_or_else(|| panic!("{told:?}"));
    assert!(chosen.contains(&output), "{chosen}");
}
