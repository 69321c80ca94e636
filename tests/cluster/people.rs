//! The cluster that people start by hand.

use std::path::Path;
use std::process::{Command, Output};

use harness::cluster::Cluster;
use harness::tool::skip;

/// Not the one that `make cluster` takes.
const NUMBER: &str = "31";

fn cluster(action: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cluster"))
        .arg(action)
        .env("SIDECARJOB_CLUSTER_NUMBER", NUMBER)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8(both).unwrap()
}

fn succeeds(action: &str) -> String {
    let output = cluster(action);
    assert!(output.status.success(), "{action}: {}", said(&output));
    said(&output)
}

/// Ends the cluster whatever becomes of the test.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        cluster("down");
    }
}

#[test]
fn a_cluster_by_hand_stays_until_it_is_ended() {
    // It needs what a node of the tests needs, and says so.
    if Cluster::for_tests().is_none() {
        return;
    }
    if Path::new("/sys/class/net")
        .join(format!("sidecarjob{NUMBER}"))
        .exists()
    {
        skip(&format!("cluster {NUMBER} is in use"));
        return;
    }
    let _ending = Ending;
    assert!(!cluster("status").status.success(), "there is none");
    let first = succeeds("up");
    let kubeconfig = succeeds("kubeconfig");
    assert!(first.contains(&format!("export KUBECONFIG={}", kubeconfig.trim())));
    assert!(succeeds("environment").contains("export AWS_ACCESS_KEY_ID="));
    assert!(succeeds("status").contains("kubelet"));
    // A person's shell has kubectl from then on.
    let shell = Command::new("bash")
        .args(["-c", "eval \"$1\"; command -v kubectl", "shell"])
        .arg(succeeds("environment"))
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let tools = harness::tool::tools_folder().join("kubectl");
    assert_eq!(said(&shell).trim(), tools.display().to_string());

    let kubectl = |arguments: &str| {
        let program = harness::tool::find_tool("kubectl").unwrap();
        let output = Command::new(program)
            .args(arguments.split(' '))
            .env("KUBECONFIG", kubeconfig.trim())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    kubectl("get sidecarjobs --all-namespaces");
    kubectl("get secret s3-credentials");
    kubectl("create configmap kept");

    // What one of its parts has lost, the next `up` brings back, and it keeps the rest.
    let record = Path::new(kubeconfig.trim()).ancestors().nth(2).unwrap();
    let record = std::fs::read_to_string(record.join("run/kubelet.pid")).unwrap();
    let id = record.split(' ').next().unwrap();
    Command::new("kill").args(["-KILL", id]).status().unwrap();
    assert_eq!(succeeds("up"), first);
    succeeds("status");
    kubectl("get configmap kept");

    assert_eq!(succeeds("down"), "the cluster is gone\n");
    assert_eq!(succeeds("down"), "there is no cluster\n");
    assert!(!cluster("kubeconfig").status.success());
}
