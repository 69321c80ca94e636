//! A cluster with a node, on which containers run.

use harness::cluster::{Cluster, Component};
use harness::image::Image;
use harness::s3_server::S3Server;
use harness::tool::find_program;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, LogParams};
use serde_json::{Value, json};

use super::jobs;

const IMAGE: &str = "localhost/shell:test";

/// Tests run side by side, but for one that stops the node.
static NODE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// The shared cluster, with an image that is a shell and a few programs.
async fn cluster_with_shell() -> Option<(&'static Cluster, Client)> {
    let cluster = Cluster::for_tests()?;
    let shell = find_program("sh", "dash")?;
    let mut image = Image::of_program(IMAGE, &shell, "/bin/sh").unwrap();
    for (program, package) in [
        ("sleep", "coreutils"),
        ("getent", "libc-bin"),
        ("curl", "curl"),
    ] {
        let path = find_program(program, package)?;
        image = image
            .with_program(&path, &format!("/bin/{program}"))
            .unwrap();
    }
    cluster.import_image(&image).unwrap();
    Some((cluster, cluster.client().await.unwrap()))
}

/// A container that runs a script, with as few rights as a worker has.
fn script(text: &str) -> Value {
    json!({
        "command": ["/bin/sh", "-c", text],
        "securityContext": {
            "runAsNonRoot": true,
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

/// What the only pod of a Job wrote.
async fn output(client: &Client, job: &str) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let name = jobs::pods(client, job).await[0]
        .metadata
        .name
        .clone()
        .unwrap();
    pods.logs(&name, &LogParams::default()).await.unwrap()
}

#[tokio::test]
async fn exit_codes_decide_about_indexes() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    let _report = cluster.report_on_failure();
    let container = script("case $JOB_COMPLETION_INDEX in 1) exit 42;; 3) exit 3;; esac");
    jobs::create(&client, &jobs::indexed("codes", IMAGE, 5, &container)).await;
    let status = jobs::await_end(&client, "codes").await.status.unwrap();
    assert_eq!(status.completed_indexes.as_deref(), Some("0,2,4"));
    assert_eq!(status.failed_indexes.as_deref(), Some("1,3"));
    let mut codes: Vec<i32> = jobs::pods(&client, "codes")
        .await
        .iter()
        .map(|pod| jobs::ending(pod).unwrap().exit_code)
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 0, 0, 3, 42]);
}

#[tokio::test]
async fn a_container_has_no_rights_and_reaches_its_servers() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    let _report = cluster.report_on_failure();
    let Some(s3) = S3Server::start_at(cluster.gateway().unwrap()) else {
        return;
    };
    let text = format!(
        r#"
        while read -r key value rest; do
          case $key in Uid: | CapEff:) echo "$key $value";; esac
        done </proc/self/status
        (echo text >/file) 2>/dev/null || echo read-only
        set -- $(getent ahostsv4 gateway); echo "gateway $1"
        getent ahostsv4 elsewhere.example || echo unknown
        echo "S3 $(curl --silent --show-error --output /dev/null --write-out '%{{http_code}}' {s3}/health)"
        cd /var/run/secrets/kubernetes.io/serviceaccount
        echo "API $(curl --silent --show-error --output /dev/null --write-out '%{{http_code}}' --cacert ca.crt \
          --header "Authorization: Bearer $(while read -r line || [ "$line" ]; do echo "$line"; done <token)" \
          https://kubernetes.default.svc/version)"
        "#,
        s3 = s3.endpoint(),
    );
    jobs::create(&client, &jobs::indexed("rights", IMAGE, 1, &script(&text))).await;
    jobs::await_end(&client, "rights").await;
    let expected = format!(
        "Uid: 65532\nCapEff: 0000000000000000\nread-only\ngateway {}\nunknown\nS3 200\nAPI 200\n",
        cluster.gateway().unwrap()
    );
    assert_eq!(output(&client, "rights").await, expected);
}

#[tokio::test]
async fn a_deleted_pod_is_asked_to_end_first() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    let _report = cluster.report_on_failure();
    let container = script("trap 'exit 143' TERM; while :; do sleep 1000 & wait; done");
    jobs::create(&client, &jobs::indexed("asked", IMAGE, 1, &container)).await;
    let name = jobs::await_running(&client, "asked", 1).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    // The Job's finalizer keeps the pod until the Job has counted it.
    let status = jobs::await_end(&client, "asked").await.status.unwrap();
    assert_eq!(status.failed_indexes.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_killed_container_has_failed() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    if !cluster.is_own() {
        harness::tool::skip("only a node of ours lets its containers be killed");
        return;
    }
    let _report = cluster.report_on_failure();
    // The first process of a container, which others inside can't even kill.
    jobs::create(
        &client,
        &jobs::indexed("killed", IMAGE, 1, &script("sleep 1000")),
    )
    .await;
    let name = jobs::await_running(&client, "killed", 1).await;
    cluster.kill_container("default", &name).unwrap();
    jobs::await_end(&client, "killed").await;
    let ending = jobs::ending(&jobs::pods(&client, "killed").await[0]).unwrap();
    assert_eq!(ending.exit_code, 137);
    assert_eq!(ending.reason.as_deref(), Some("Error"));
}

#[tokio::test]
async fn memory_beyond_the_limit_ends_a_container() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    let _report = cluster.report_on_failure();
    let mut container = script("text=0123456789abcdef; while :; do text=$text$text; done");
    container["resources"] = json!({"limits": {"memory": "32Mi"}});
    jobs::create(&client, &jobs::indexed("greedy", IMAGE, 1, &container)).await;
    jobs::await_end(&client, "greedy").await;
    let ending = jobs::ending(&jobs::pods(&client, "greedy").await[0]).unwrap();
    assert_eq!(ending.exit_code, 137);
    assert_eq!(ending.reason.as_deref(), Some("OOMKilled"));
}

#[tokio::test]
async fn pods_that_do_not_fit_say_so() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    let _report = cluster.report_on_failure();
    let mut container = script("exit 0");
    container["resources"] = json!({"requests": {"cpu": "1000"}});
    jobs::create(&client, &jobs::indexed("huge", IMAGE, 1, &container)).await;
    let message = jobs::until("the scheduler's word", async || {
        let pods = jobs::pods(&client, "huge").await;
        let conditions = pods.first()?.status.as_ref()?.conditions.clone()?;
        let condition = conditions
            .into_iter()
            .find(|condition| condition.reason.as_deref() == Some("Unschedulable"))?;
        condition.message
    })
    .await;
    assert!(message.contains("Insufficient cpu"), "{message}");
    cluster.kubectl(&["delete", "job", "huge"]).unwrap();
}

#[tokio::test]
async fn pods_outlive_a_kubelet_and_not_a_node() {
    let _node = NODE.write().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    if !cluster.is_own() {
        harness::tool::skip("somebody else's kubelet can't be killed");
        return;
    }
    let _report = cluster.report_on_failure();
    // Ends with 0 as soon as it is told so; that it is the same container, only it knows.
    let container = script("trap 'exit 0' USR1; while :; do sleep 1000 & wait; done");
    jobs::create(&client, &jobs::indexed("patient", IMAGE, 1, &container)).await;
    let name = jobs::await_running(&client, "patient", 1).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let container_of = async || {
        let pod = pods.get(&name).await.unwrap();
        let containers = pod.status.unwrap().container_statuses.unwrap();
        containers[0].container_id.clone()
    };
    let before = container_of().await;

    cluster.kill(Component::Kubelet).unwrap();
    assert!(!cluster.is_running(Component::Kubelet));
    cluster.start_component(Component::Kubelet).unwrap();
    assert_eq!(container_of().await, before);

    cluster.crash_node().unwrap();
    assert!(!cluster.is_running(Component::Containerd));
    cluster.start_node().unwrap();
    let status = jobs::await_end(&client, "patient").await.status.unwrap();
    assert_eq!(status.failed_indexes.as_deref(), Some("0"));
    let ending = jobs::ending(&jobs::pods(&client, "patient").await[0]).unwrap();
    assert_eq!(ending.exit_code, 255);

    // And it is a node as before.
    jobs::create(&client, &jobs::indexed("anew", IMAGE, 2, &script("exit 0"))).await;
    let status = jobs::await_end(&client, "anew").await.status.unwrap();
    assert_eq!(status.completed_indexes.as_deref(), Some("0,1"));
}

#[tokio::test]
async fn a_report_tells_what_happened() {
    let _node = NODE.read().await;
    let Some((cluster, client)) = cluster_with_shell().await else {
        return;
    };
    jobs::create(&client, &jobs::indexed("told", IMAGE, 1, &script("exit 0"))).await;
    jobs::await_end(&client, "told").await;
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let known = events.list(&ListParams::default()).await.unwrap();
    assert!(!known.items.is_empty());
    let report = cluster.report();
    for part in ["job.batch/told", "pod/told-0-", "kubectl get events"] {
        assert!(report.contains(part), "no {part} in {report}");
    }
}
