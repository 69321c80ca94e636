//! A cluster without a node.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::cluster::{Cluster, Component, Kwok};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::jobs;

/// One control plane for all, since starting it takes longer than the rest.
#[tokio::test]
async fn controllers_act_without_a_node() {
    let Some(cluster) = Cluster::control_plane() else {
        return;
    };
    let _report = cluster.report_on_failure();
    let client = cluster.client().await.unwrap();
    a_job_gets_its_pods(&client).await;
    accounts_have_no_rights_but_their_own(&cluster).await;
    requests_are_written_down(&cluster);
    what_was_stored_survives_a_crash(&cluster, &client).await;
    pretended_pods_end_as_told(&cluster, &client).await;
    deleted_pods_end_as_if_terminated(&client).await;
}

async fn a_job_gets_its_pods(client: &Client) {
    jobs::create(client, &jobs::indexed("waiting", "none", 3, &json!({}))).await;
    let pods = jobs::until("pods", async || {
        let pods = jobs::pods(client, "waiting").await;
        (pods.len() == 3).then_some(pods)
    })
    .await;
    assert!(pods.iter().all(|pod| jobs::phase(pod) == "Pending"));
    let all: Api<Job> = Api::default_namespaced(client.clone());
    let background = DeleteParams::background();
    all.delete("waiting", &background).await.unwrap();
}

async fn accounts_have_no_rights_but_their_own(cluster: &Cluster) {
    let client = cluster
        .service_account_client("default", "default")
        .await
        .unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let error = pods.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else {
        panic!("{error}");
    };
    assert_eq!(status.code, 403, "{}", status.message);
    assert!(
        status
            .message
            .contains("system:serviceaccount:default:default"),
        "{}",
        status.message
    );
}

fn requests_are_written_down(cluster: &Cluster) {
    let requests = cluster.requests().unwrap();
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| request.user == "system:serviceaccount:default:default")
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((refused[0].verb.as_str(), refused[0].code), ("list", 403));
    assert!(!refused[0].is_write());
    let created = requests.iter().filter(|request| {
        (request.verb.as_str(), request.resource.as_str()) == ("create", "jobs")
            && request.name == "waiting"
    });
    assert_eq!(created.count(), 1);
}

async fn what_was_stored_survives_a_crash(cluster: &Cluster, client: &Client) {
    for component in [Component::ApiServer, Component::Etcd] {
        cluster.kill(component).unwrap();
        assert!(!cluster.is_running(component));
    }
    let all: Api<Job> = Api::default_namespaced(client.clone());
    assert!(all.get("waiting").await.is_err(), "nobody is there");
    cluster.start_component(Component::Etcd).unwrap();
    cluster.start_component(Component::ApiServer).unwrap();
    // Controllers have lost their server for a moment, and find it again.
    jobs::create(client, &jobs::indexed("after", "none", 1, &json!({}))).await;
    jobs::until("a pod", async || jobs::pods(client, "after").await.pop()).await;
}

async fn pretended_pods_end_as_told(cluster: &Cluster, client: &Client) {
    let kwok = Kwok {
        nodes: 2,
        exit_codes: BTreeMap::from([(3, 42), (7, 1)]),
        run_time: Duration::from_millis(500),
        termination_message: r#"{"rows": 512}"#.to_owned(),
        ..Kwok::default()
    };
    assert!(cluster.pretend_nodes(&kwok).unwrap());
    jobs::create(client, &jobs::indexed("pretended", "none", 20, &json!({}))).await;
    let status = jobs::await_end(client, "pretended").await.status.unwrap();
    assert_eq!(status.completed_indexes.as_deref(), Some("0-2,4-6,8-19"));
    assert_eq!(status.failed_indexes.as_deref(), Some("3,7"));
    let pods = jobs::pods(client, "pretended").await;
    let mut codes: Vec<i32> = pods
        .iter()
        .map(|pod| {
            let ending = jobs::ending(pod).unwrap();
            assert_eq!(ending.message.as_deref(), Some(r#"{"rows": 512}"#));
            ending.exit_code
        })
        .filter(|code| *code != 0)
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [1, 42]);
}

/// As a kubelet does: a pod that is deleted ends first, and the Job counts it.
async fn deleted_pods_end_as_if_terminated(client: &Client) {
    jobs::create(client, &jobs::indexed("long", "none", 1, &json!({}))).await;
    let name = jobs::await_running(client, "long", 1).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    let status = jobs::await_end(client, "long").await.status.unwrap();
    assert_eq!(status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(status.terminating, Some(0));
    jobs::until("the pod to go", async || {
        jobs::pods(client, "long").await.is_empty().then_some(())
    })
    .await;
}
