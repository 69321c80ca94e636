//! `kill -9` of everything that has a part in a run.

use crds::SidecarJob;
use harness::cluster::Component;
use harness::tool::skip;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::site::{SYSTEM, alone, shared};

/// Which run it is.
fn run(object: &SidecarJob) -> (String, Option<i64>) {
    let run = object.status.clone().unwrap().run.unwrap();
    (run.name, run.epoch)
}

#[tokio::test]
async fn a_killed_worker_is_replaced_and_repeats_nothing() {
    let _node = shared().await;
    let Some(place) = Place::new("killed", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("only a node of ours lets its containers be killed");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    for shards in [8, 40] {
        place.wait_for_shards("photos", shards).await;
        eventually("a worker is killed", async || {
            let pod = place.wait_for_worker().await;
            // It may have ended by itself meanwhile.
            let killed = place.cluster.kill_container(&place.namespace, &pod);
            killed.is_ok().then_some(())
        })
        .await;
    }
    place.wait_until_whole(&job, witness).await;
}

#[tokio::test]
async fn a_killed_operator_is_replaced_and_the_run_goes_on() {
    let _node = alone().await;
    let Some(place) = Place::new("leader", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("only a node of ours lets its containers be killed");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let before = run(&place.object("photos").await);
    let leases: Api<Lease> = Api::namespaced(place.client.clone(), SYSTEM);
    let leader = async || {
        let lease = leases.get("sidecarjob-operator").await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap_or_default()
    };
    let first = leader().await;
    let pod = first.split('_').next().unwrap();
    place.cluster.kill_container(SYSTEM, pod).unwrap();
    eventually("another leads", async || {
        let now = leader().await;
        (now != first && !now.is_empty()).then_some(())
    })
    .await;
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(run(&object), before, "the same run, in the same epoch");
}

#[tokio::test]
async fn workers_outlive_a_killed_kubelet() {
    let _node = alone().await;
    let Some(place) = Place::new("kubelet", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("somebody else's kubelet can't be killed");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let before = run(&place.object("photos").await);
    place.cluster.kill(Component::Kubelet).unwrap();
    let there = place.shards("photos").len();
    place.wait_for_shards("photos", there + 2).await;
    place.cluster.start_component(Component::Kubelet).unwrap();
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(run(&object), before);
}
