//! Several replicas.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use crate::operator::{Operator, Start};
use crate::place::{Place, eventually};
use crate::pods::PodRunner;
use crate::sidecar_jobs::is_true;

fn leases(place: &Place) -> Api<Lease> {
    Api::namespaced(place.client.clone(), "sidecarjob-system")
}

async fn holder(place: &Place) -> String {
    let lease = leases(place).get("sidecarjob-operator").await.unwrap();
    let spec = lease.spec.unwrap_or_default();
    spec.holder_identity.unwrap_or_default()
}

#[tokio::test]
async fn one_replica_works_and_another_takes_over() {
    let Some(place) = Place::new("leaders").await else {
        return;
    };
    let root = place.dataset("d", 4);
    let first = Operator::begin(&place).await;
    let second = Start::new(&place).begin().await;
    second.wait_for("standing by").await;
    place.create(&place.job("photos", &root, &json!({}))).await;
    place
        .wait("photos", "seen", |object| is_true(object, "Planned"))
        .await;
    let ours = format!("namespace=\"{}\"", place.namespace);
    assert!(first.metric("sidecarjob_condition", &ours).await.is_some());
    assert_eq!(second.metric("sidecarjob_condition", &ours).await, None);
    assert_eq!(first.metric("sidecarjob_leader", "").await, Some(1.0));
    assert_eq!(second.metric("sidecarjob_leader", "").await, Some(0.0));

    // In order: the Lease is given up.
    let former = holder(&place).await;
    assert!(first.terminate().success());
    second.wait_for("leader").await;
    assert_ne!(holder(&place).await, former);

    // Killed: its time has to run out.
    let third = Start::new(&place).begin().await;
    third.wait_for("standing by").await;
    second.kill();
    third.wait_for("leader").await;
    let _pods = PodRunner::begin(&place);
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
}

#[tokio::test]
async fn a_replica_that_loses_the_lease_ends() {
    let Some(place) = Place::new("lost").await else {
        return;
    };
    let mut operator = Operator::begin(&place).await;
    let patch = json!({"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1}});
    let parameters = PatchParams::default();
    eventually("the lease is taken", async || {
        let leases = leases(&place);
        leases
            .patch("sidecarjob-operator", &parameters, &Patch::Merge(&patch))
            .await
            .ok()
    })
    .await;
    assert_eq!(operator.wait_for_exit().code(), Some(1));
    assert!(
        operator.log().contains("was taken over by somebody"),
        "{}",
        operator.log()
    );
}

#[tokio::test]
async fn a_replica_that_was_paused_for_too_long_ends() {
    let Some(place) = Place::new("paused").await else {
        return;
    };
    let mut paused = Operator::begin(&place).await;
    let other = Start::new(&place).begin().await;
    other.wait_for("standing by").await;
    paused.signal(Signal::STOP);
    other.wait_for("leader").await;
    paused.signal(Signal::CONT);
    assert_eq!(paused.wait_for_exit().code(), Some(1));
    other.wait_for("leader").await;
}
