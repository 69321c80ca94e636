//! Nodes and pods that are only told of: kwok says for each pod that it runs and, after some
//! time, how it ended. Thousands of them cost what their objects cost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::certificates::{KWOK, kubeconfig};
use super::site::Site;

/// What pretended nodes and pods do.
#[derive(Debug, Clone)]
pub struct Kwok {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many pods each takes.
    pub pods_per_node: usize,
    /// How long a pod says that it runs.
    pub run_time: Duration,
    /// Exit codes of the completion indexes that do not end with 0, of every Job.
    pub exit_codes: BTreeMap<usize, i32>,
    /// What each container leaves as its termination message.
    pub termination_message: String,
}

impl Default for Kwok {
    fn default() -> Self {
        Self {
            nodes: 10,
            pods_per_node: 1000,
            run_time: Duration::from_secs(1),
            exit_codes: BTreeMap::new(),
            termination_message: String::new(),
        }
    }
}

/// Label and value of the nodes that kwok looks after.
const OWNED: &str = "sidecarjob.dev/pretended";
/// Exit code of a program that was asked to end: 128 and the number of SIGTERM.
const EXIT_TERMINATED: i32 = 143;

/// The command that runs kwok, which reads a file that is written here.
pub(super) fn command(program: &Path, site: &Site, kwok: &Kwok) -> Result<Command> {
    let config = site.path("kwok.yaml");
    let documents: Vec<String> = stages(kwok).iter().map(Value::to_string).collect();
    fs::write(&config, documents.join("\n---\n"))
        .with_context(|| format!("can't write {}", config.display()))?;
    let mut command = Command::new(program);
    command
        .arg(format!("--kubeconfig={}", kubeconfig(site, KWOK).display()))
        .arg(format!("--config={}", config.display()))
        .arg(format!("--manage-nodes-with-label-selector={OWNED}=yes"))
        .arg("--node-lease-duration-seconds=40")
        // It keeps a work folder there.
        .env("HOME", &site.folder)
        .env("KWOK_WORKDIR", site.path("kwok"));
    Ok(command)
}

/// Tells the API server of the nodes.
pub(super) async fn create_nodes(client: Client, kwok: &Kwok) -> Result<()> {
    let nodes: Api<Node> = Api::all(client);
    for number in 0..kwok.nodes {
        let name = format!("pretended-{number}");
        let room = json!({"cpu": "10k", "memory": "10Ti", "pods": kwok.pods_per_node});
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {
                OWNED: "yes",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
            }},
        });
        let status = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "status": {"capacity": room, "allocatable": room},
        });
        let manager = PatchParams::apply("harness").force();
        nodes.patch(&name, &manager, &Patch::Apply(&node)).await?;
        nodes
            .patch_status(&name, &manager, &Patch::Apply(&status))
            .await?;
    }
    Ok(())
}

/// What becomes of nodes and pods, in kwok's own terms: `next` happens to objects that
/// `selector` finds, after `delay`.
fn stages(kwok: &Kwok) -> [Value; 5] {
    let absent = json!({"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"});
    let deleted = json!({"key": ".metadata.deletionTimestamp", "operator": "Exists"});
    let phase =
        |phases: &[&str]| json!({"key": ".status.phase", "operator": "In", "values": phases});
    let milliseconds = u64::try_from(kwok.run_time.as_millis()).unwrap_or(u64::MAX);
    [
        stage(
            "node-ready",
            "Node",
            &[json!({
                "key": r#".status.conditions.[] | select( .type == "Ready" ) | .status"#,
                "operator": "NotIn",
                "values": ["True"],
            })],
            0,
            &json!({"statusTemplate": NODE_READY}),
        ),
        stage(
            "pod-runs",
            "Pod",
            &[absent.clone(), phase(&["Pending"])],
            0,
            &json!({"statusTemplate": POD_RUNS}),
        ),
        stage(
            "pod-ends",
            "Pod",
            &[
                absent,
                phase(&["Running"]),
                json!({
                    "key": ".metadata.ownerReferences.[].kind",
                    "operator": "In",
                    "values": ["Job"],
                }),
            ],
            milliseconds,
            &json!({"statusTemplate": pod_ends(&exit_code(&kwok.exit_codes), &kwok.termination_message)}),
        ),
        // A kubelet ends the containers first; the Job controller waits for that.
        stage(
            "pod-terminates",
            "Pod",
            &[deleted.clone(), phase(&["Pending", "Running"])],
            0,
            &json!({"statusTemplate": pod_ends(&EXIT_TERMINATED.to_string(), "")}),
        ),
        stage(
            "pod-goes",
            "Pod",
            &[
                deleted,
                phase(&["Succeeded", "Failed"]),
                json!({"key": ".metadata.finalizers", "operator": "DoesNotExist"}),
            ],
            0,
            &json!({"delete": true}),
        ),
    ]
}

fn stage(name: &str, kind: &str, selector: &[Value], delay: u64, next: &Value) -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": selector},
            "delay": {"durationMilliseconds": delay},
            "next": next,
        },
    })
}

/// A template's expression for the exit code by completion index.
fn exit_code(codes: &BTreeMap<usize, i32>) -> String {
    let mut expression = String::from("(dict");
    for (index, code) in codes {
        expression.push_str(&format!(r#" "{index}" {code}"#));
    }
    expression.push(')');
    format!(
        r#"{expression} | dig (index .metadata.labels "batch.kubernetes.io/job-completion-index" | default "none") 0"#
    )
}

const NODE_READY: &str = "\
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
phase: Running
";

const POD_RUNS: &str = "\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
- {type: Initialized, status: \"True\", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: \"True\", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: \"True\", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
";

/// The status of a pod whose containers have ended.
fn pod_ends(exit_code: &str, message: &str) -> String {
    format!(
        "\
{{{{ $now := Now }}}}
{{{{ $start := .status.startTime | default $now }}}}
{{{{ $code := {exit_code} }}}}
phase: {{{{ if eq (int $code) 0 }}}}Succeeded{{{{ else }}}}Failed{{{{ end }}}}
conditions:
- {{type: ContainersReady, status: \"False\", lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: Ready, status: \"False\", lastTransitionTime: {{{{ $now | Quote }}}}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  imageID: {{{{ .image | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {{{{ $code }}}}
      reason: {{{{ if eq (int $code) 0 }}}}Completed{{{{ else }}}}Error{{{{ end }}}}
      message: {message}
      startedAt: {{{{ $start | Quote }}}}
      finishedAt: {{{{ $now | Quote }}}}
{{{{ end }}}}
",
        message = Value::from(message),
    )
}
