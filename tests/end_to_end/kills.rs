//! `kill -9` of everything that has a part in a run.

use crds::SidecarJob;
use harness::cluster::Component;
use harness::tool::skip;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use serde_json::Value;

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

#[tokio::test]
async fn a_node_that_dies_takes_no_finished_work_along() {
    let _node = alone().await;
    let Some(place) = Place::new("power-cut", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("somebody else's node can't be crashed");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let before = run(&place.object("photos").await);
    place.cluster.crash_node().unwrap();
    let there = place.shards("photos").len();
    assert!(there < Place::SMALL.shards, "it was too quick");
    place.cluster.start_node().unwrap();
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(run(&object), before);
}

#[tokio::test]
async fn workers_go_on_while_the_api_server_is_away() {
    let _node = alone().await;
    let Some(place) = Place::new("api-away", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return skip("somebody else's API server can't be killed");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    // The workers have to be at it, since nobody can start others.
    place.wait_for_worker().await;
    let before = run(&place.object("photos").await);
    place.cluster.kill(Component::ApiServer).unwrap();
    let there = place.shards("photos").len();
    place.wait_for_shards("photos", there + 2).await;
    place.cluster.start_component(Component::ApiServer).unwrap();
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(run(&object), before, "the same run, in the same epoch");
}

#[tokio::test]
async fn an_operator_that_is_away_for_longer_than_its_lock_lives_goes_on() {
    let _node = alone().await;
    let Some(place) = Place::new("away", Place::SMALL).await else {
        return;
    };
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    place.wait_for_shards("photos", 8).await;
    let before = run(&place.object("photos").await);
    let scale = |replicas: &str| {
        let replicas = format!("--replicas={replicas}");
        let deployment = ["deployment/sidecarjob-operator", "--namespace", SYSTEM];
        let scale = [&["scale", &replicas][..], &deployment].concat();
        place.cluster.kubectl(&scale).unwrap();
    };
    scale("0");
    eventually("the lock has expired", async || {
        let lock = place.read("s3://bucket/out/photos/_sidecar/writer.json");
        let lock: Value = serde_json::from_str(&lock).unwrap();
        let expires: Timestamp = lock["expires_at"].as_str().unwrap().parse().unwrap();
        (expires < Timestamp::now()).then_some(())
    })
    .await;
    scale("2");
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(run(&object).0, before.0, "the same run");
}
