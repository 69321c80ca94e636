//! What stands still says why, in the words of whoever holds it up.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::place::{LIMIT, Place, eventually};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{is_true, limit_pods, message, phase, words};

fn first_attempts(object: &crds::SidecarJob) -> bool {
    let batches = object.status.as_ref().map(|status| &status.batches);
    batches.is_some_and(|batches| batches.iter().all(|batch| batch.attempt == 1))
}

async fn quota(place: &Place, pods: &str) {
    limit_pods(&place.client, &place.namespace, LIMIT, pods).await;
}

#[tokio::test]
async fn a_quota_without_pods_is_told_of_and_the_run_goes_on_once_it_is_raised() {
    let Some(place) = Place::new("quota").await else {
        return;
    };
    let root = place.dataset("d", 6);
    quota(&place, "0").await;
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    place.create(&place.job("photos", &root, &json!({}))).await;
    let object = place
        .wait("photos", "refused", |object| {
            message(object).contains("exceeded quota")
        })
        .await;
    let (reason, words) = words(&object, "WorkersUnschedulable");
    assert_eq!(reason, "FailedCreate", "{words}");
    assert!(words.contains("exceeded quota: few"), "{words}");
    quota(&place, "20").await;
    let object = place.wait_for_end("photos").await;
    assert_eq!(phase(&object), "Succeeded", "{:#}", json!(object.status));
    assert!(first_attempts(&object), "{:#}", json!(object.status));
    assert!(!is_true(&object, "WorkersUnschedulable"));
}

#[tokio::test]
async fn a_job_that_has_made_no_pod_gives_way_to_a_corrected_spec() {
    let Some(place) = Place::new("account").await else {
        return;
    };
    let root = place.dataset("d", 6);
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let spec = json!({"worker": {"priorityClassName": "no-such-class"}});
    place.create(&place.job("photos", &root, &spec)).await;
    place
        .wait("photos", "refused", |object| {
            message(object).contains("no-such-class")
        })
        .await;
    let corrected = json!({"spec": {"worker": {"priorityClassName": null}}});
    place.patch("photos", &corrected).await;
    let object = place.wait_for_end("photos").await;
    assert_eq!(phase(&object), "Succeeded", "{:#}", json!(object.status));
    assert!(first_attempts(&object), "{:#}", json!(object.status));
}

#[tokio::test]
async fn a_job_that_the_api_server_refuses_stalls_the_run_in_plain_words() {
    let Some(place) = Place::new("refused").await else {
        return;
    };
    let root = place.dataset("d", 6);
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let spec = json!({"worker": {"resources": {
        "requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"},
    }}});
    place.create(&place.job("photos", &root, &spec)).await;
    let object = place
        .wait("photos", "stalled", |object| is_true(object, "Stalled"))
        .await;
    let (reason, words) = words(&object, "Stalled");
    assert_eq!(reason, "JobRefused", "{words}");
    assert_eq!(phase(&object), "Stalled");
    assert!(
        words.contains("must be less than or equal to memory limit"),
        "{words}"
    );
    assert!(
        !words.contains("Status {") && !words.contains("Some("),
        "{words}"
    );
    let corrected = json!({"spec": {"worker": {"resources": {"limits": {"memory": "2Gi"}}}}});
    place.patch("photos", &corrected).await;
    let object = place.wait_for_end("photos").await;
    assert_eq!(phase(&object), "Succeeded", "{:#}", json!(object.status));
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

async fn jobs(place: &Place) -> Vec<Job> {
    let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
    jobs.items
}

/// A restarted operator knows nothing of the run, and can't know: the Secret is gone.
#[tokio::test]
async fn jobs_are_suspended_after_a_restart_while_the_secret_is_missing() {
    let Some(place) = Place::new("stop").await else {
        return;
    };
    let root = place.dataset("d", 24);
    let secrets: Api<Secret> = Api::namespaced(place.client.clone(), &place.namespace);
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "keys"},
        "stringData": {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"},
    }))
    .unwrap();
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let operator = Operator::begin(&place).await;
    // Nobody runs the pods: the Jobs stay.
    let spec = json!({"storage": {"credentialsSecretRef": {"name": "keys"}}});
    place.create(&place.job("photos", &root, &spec)).await;
    eventually("a Job is there", async || jobs(&place).await.pop()).await;
    assert!(operator.terminate().success());
    secrets
        .delete("keys", &DeleteParams::default())
        .await
        .unwrap();
    place
        .patch("photos", &json!({"spec": {"suspend": true}}))
        .await;
    let _operator = Operator::begin(&place).await;
    eventually("the Jobs are suspended", async || {
        let jobs = jobs(&place).await;
        (!jobs.is_empty() && jobs.iter().all(is_suspended)).then_some(())
    })
    .await;
    place
        .wait("photos", "suspended", |object| is_true(object, "Suspended"))
        .await;
}

#[tokio::test]
async fn a_job_that_somebody_else_suspended_stays_so_until_they_resume_it() {
    let Some(place) = Place::new("foreign").await else {
        return;
    };
    let root = place.dataset("d", 6);
    let _operator = Operator::begin(&place).await;
    place.create(&place.job("photos", &root, &json!({}))).await;
    let job = eventually("a Job is there", async || jobs(&place).await.pop()).await;
    let suspend = |suspend: bool| Patch::Merge(json!({"spec": {"suspend": suspend}}));
    let parameters = PatchParams::default();
    let name = job.name_any();
    place
        .jobs()
        .patch(&name, &parameters, &suspend(true))
        .await
        .unwrap();
    let object = place
        .wait("photos", "held back", |object| is_true(object, "Queued"))
        .await;
    assert_eq!(words(&object, "Queued").0, "SuspendedByAnother");
    assert!(
        message(&object).contains("something else"),
        "{}",
        message(&object)
    );
    assert!(jobs(&place).await.iter().all(is_suspended));
    let _pods = PodRunner::begin(&place);
    place
        .jobs()
        .patch(&name, &parameters, &suspend(false))
        .await
        .unwrap();
    let object = place.wait_for_end("photos").await;
    assert_eq!(phase(&object), "Succeeded", "{:#}", json!(object.status));
}

/// The part of Kueue's API that the operator looks at, as v0.17 has it.
fn workloads_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io", "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue",
        }},
        "spec": {
            "group": "kueue.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Kueue describes what waits in a Workload, lets in fewer workers than were asked for, and owns
/// `suspend` and `parallelism` meanwhile.
#[tokio::test]
async fn a_queue_says_why_a_job_waits_and_how_many_workers_it_lets_in() {
    let Some(place) = Place::new("queue").await else {
        return;
    };
    let definition = place.folder.path().join("workloads.json");
    std::fs::write(&definition, workloads_definition().to_string()).unwrap();
    let definition = definition.display().to_string();
    let apply = ["apply", "--server-side", "-f", &definition];
    place.cluster.kubectl(&apply).unwrap();
    let established = ["wait", "--for=condition=Established", "-f", &definition];
    place.cluster.kubectl(&established).unwrap();

    let root = place.dataset("d", 12);
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let mut job = place.job("photos", &root, &json!({"queue": "team"}));
    job.labels_mut()
        .insert("kueue.x-k8s.io/priority-class".to_owned(), "low".to_owned());
    place.create(&job).await;
    let job = eventually("a Job is there", async || jobs(&place).await.pop()).await;
    assert!(is_suspended(&job));
    assert_eq!(job.labels()["kueue.x-k8s.io/queue-name"], "team");
    assert_eq!(job.labels()["kueue.x-k8s.io/priority-class"], "low");
    assert_eq!(job.annotations()["kueue.x-k8s.io/job-min-parallelism"], "1");

    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "job-photos", "namespace": place.namespace,
            "labels": {"kueue.x-k8s.io/job-uid": job.uid()},
        },
        "status": {"conditions": [{
            "type": "QuotaReserved", "status": "False", "reason": "Pending",
            "message": "couldn't assign flavors to pod set main: insufficient unused quota",
        }]},
    });
    let file = place.folder.path().join("workload.json");
    std::fs::write(&file, workload.to_string()).unwrap();
    let file = file.display().to_string();
    place
        .cluster
        .kubectl(&["apply", "--server-side", "-f", &file])
        .unwrap();
    let object = place
        .wait("photos", "told why", |object| {
            message(object).contains("insufficient unused quota")
        })
        .await;
    assert_eq!(words(&object, "Queued").0, "WaitingForQueue");

    // It lets one worker in after the other Jobs' fashion: whatever comes is admitted with one.
    let parameters = PatchParams::default();
    let admit = Patch::Merge(json!({"spec": {"suspend": false, "parallelism": 1}}));
    let object = eventually("the run is over", async || {
        for job in jobs(&place).await {
            if is_suspended(&job) {
                let name = job.name_any();
                // It may have gone.
                let _ = place.jobs().patch(&name, &parameters, &admit).await;
            } else {
                let parallelism = job.spec.as_ref().and_then(|spec| spec.parallelism);
                assert_eq!(parallelism, Some(1), "it is the queue's");
            }
        }
        let object = place.object("photos").await;
        is_true(&object, "Complete").then_some(object)
    })
    .await;
    assert!(!is_true(&object, "Queued"));
}
