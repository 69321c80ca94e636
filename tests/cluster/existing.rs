//! Somebody else's cluster in place of ours.

use std::process::Command;

use harness::cluster::{Cluster, Component};

/// What the second process is told to run.
const GUEST: &str = "existing::guest";

/// A process of its own, since it is the environment that says so.
#[test]
fn tests_run_on_the_cluster_that_the_environment_names() {
    let Some(cluster) = Cluster::control_plane() else {
        return;
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", GUEST, "--ignored", "--nocapture"])
        .env("SIDECARJOB_E2E_EXISTING", "1")
        .env("SIDECARJOB_E2E_GATEWAY", "192.0.2.7")
        .env("KUBECONFIG", cluster.kubeconfig())
        .env_remove("SIDECARJOB_KUBECONFIG")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "a part of the test above"]
fn guest() {
    let cluster = Cluster::for_tests().unwrap();
    assert!(!cluster.is_own());
    assert_eq!(cluster.gateway().unwrap().to_string(), "192.0.2.7");
    let namespaces = cluster.kubectl(&["get", "namespaces"]).unwrap();
    assert!(namespaces.contains("kube-system"), "{namespaces}");
    let error = cluster.kill(Component::ApiServer).unwrap_err();
    assert!(error.to_string().contains("somebody else's"), "{error}");
}
