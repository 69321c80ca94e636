//! What is kept of a worker's pod: a few words of its status.

use std::borrow::Cow;
use std::collections::HashSet;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use rules::build::{CONTAINER, labels};
use rules::model::{ObservedPods, PodRef};
use serde::Deserialize;

use super::cache::ObjectKey;
use crate::events::cut;

/// A pod, read only as far as it is needed: without its spec.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkerPod {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its status.
    #[serde(default)]
    pub status: WorkerPodStatus,
}

/// The status of a pod as far as it is needed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPodStatus {
    /// Pending, Running, …
    #[serde(default)]
    pub phase: String,
    /// Conditions.
    #[serde(default)]
    pub conditions: Vec<PodCondition>,
    /// Containers.
    #[serde(default)]
    pub container_statuses: Vec<ContainerStatus>,
    /// Containers that come before, or beside, those.
    #[serde(default)]
    pub init_container_statuses: Vec<ContainerStatus>,
}

impl Resource for WorkerPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind(dynamic: &()) -> Cow<'_, str> {
        Pod::kind(dynamic)
    }

    fn group(dynamic: &()) -> Cow<'_, str> {
        Pod::group(dynamic)
    }

    fn version(dynamic: &()) -> Cow<'_, str> {
        Pod::version(dynamic)
    }

    fn plural(dynamic: &()) -> Cow<'_, str> {
        Pod::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A pod that has not ended, or died.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptPod {
    /// Uid of the SidecarJob, from its label.
    pub owner: String,
    /// How far it is.
    pub state: PodState,
    /// Its `metadata.uid`.
    pub uid: String,
    /// Batch, attempt and index that it works on; `None` if it doesn't say.
    pub work: Option<(u32, u32, u32)>,
}

/// How far a pod is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PodState {
    /// Its worker runs, since then (in seconds since the epoch of Unix).
    Ready(i64),
    /// Its worker has ended, at that time, and this container of somebody else's runs on.
    Outlived(i64, String),
    /// It is being deleted.
    Going,
    /// Its container hasn't started yet.
    Pending,
    /// It fits on no node, in the scheduler's words.
    Unschedulable(String),
    /// Its container can't start, in the kubelet's words.
    CannotStart(String),
    /// It has failed, and its worker had no time to say why.
    Died(String),
}

/// Why a container that waits won't start by itself soon; other reasons are part of any start.
const CANNOT_START: [&str; 7] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
];

/// Bytes of a worker's last words that are kept.
const LAST_WORDS: usize = 200;

/// Exit codes of workers that have said why they ended: those of their documentation, and that
/// of one that was asked to end.
const SPOKEN: [i32; 6] = [1, 2, 3, 4, 5, 143];

/// What is kept of `pod`; `None` if it has ended as a worker does, or is nobody's.
pub fn keep_pod(pod: &WorkerPod) -> Option<KeptPod> {
    let labels = pod.metadata.labels.as_ref()?;
    let owner = labels.get(labels::JOB_UID)?.clone();
    let state = match pod.status.phase.as_str() {
        "Succeeded" => return None,
        "Failed" => PodState::Died(death(&pod.status)?),
        _ if pod.metadata.deletion_timestamp.is_some() => PodState::Going,
        _ => state(&pod.status),
    };
    let number = |key| labels.get(key).and_then(|text| text.parse().ok());
    let work = || {
        Some((
            number(labels::BATCH)?,
            number(labels::ATTEMPT)?,
            number(labels::INDEX)?,
        ))
    };
    Some(KeptPod {
        owner,
        state,
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        work: work(),
    })
}

/// How a worker ended that could not say so itself, and was not asked to go.
fn death(status: &WorkerPodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter();
    if conditions.any(|condition| condition.type_ == "DisruptionTarget") {
        return None;
    }
    let mut containers = status.container_statuses.iter();
    let worker = status.container_statuses.iter().find(is_worker);
    let ended = worker
        .and_then(ended)
        .or_else(|| containers.find_map(ended))?;
    if SPOKEN.contains(&ended.exit_code) {
        return None;
    }
    let reason = ended.reason.as_deref().unwrap_or("Error");
    let words = format!("{reason} (exit {})", ended.exit_code);
    let last = ended.message.as_deref().unwrap_or_default().trim_end();
    match last.lines().next_back() {
        Some(line) => Some(format!("{words}: {}", cut(line.trim(), LAST_WORDS))),
        None => Some(words),
    }
}

fn is_worker(container: &&ContainerStatus) -> bool {
    container.name == CONTAINER
}

fn ended(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn second(time: Option<&Time>) -> i64 {
    time.map_or(0, |time| time.0.as_second())
}

fn state(status: &WorkerPodStatus) -> PodState {
    let scheduled = status.conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = scheduled {
        return PodState::Unschedulable(condition.message.clone().unwrap_or_default());
    }
    let worker = status.container_statuses.iter().find(is_worker);
    if let Some(running) = worker.and_then(|worker| worker.state.as_ref()?.running.as_ref()) {
        return PodState::Ready(second(running.started_at.as_ref()));
    }
    let mut others = status.container_statuses.iter();
    let other = others.find(|container| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    });
    if let (Some(ended), Some(other)) = (worker.and_then(ended), other) {
        let at = second(ended.finished_at.as_ref());
        return PodState::Outlived(at, other.name.clone());
    }
    let before = status.init_container_statuses.iter();
    for container in before.chain(&status.container_statuses) {
        let Some(container_state) = &container.state else {
            continue;
        };
        let reason = container_state
            .waiting
            .as_ref()
            .and_then(|waiting| Some((waiting.reason.as_deref()?, waiting.message.as_deref())));
        if let Some((reason, message)) = reason
            && CANNOT_START.contains(&reason)
        {
            let words = match message {
                Some(message) => format!("{reason}: {message}"),
                None => reason.to_owned(),
            };
            return PodState::CannotStart(words);
        }
    }
    PodState::Pending
}

/// The pods of one SidecarJob, summed; `silent` is the work of which nothing is heard. Of several messages the first by its text counts, so
/// that it stays the same whatever the order.
pub fn sum_pods<'a>(
    pods: impl IntoIterator<Item = (&'a ObjectKey, &'a KeptPod)>,
    silent: &HashSet<(u32, u32, u32)>,
) -> ObservedPods {
    let mut sum = ObservedPods::default();
    for (key, pod) in pods {
        let named = |since_s| PodRef {
            name: key.name.clone(),
            uid: pod.uid.clone(),
            since_s,
        };
        if let PodState::Died(message) = &pod.state {
            keep_first(&mut sum.died, message);
            continue;
        }
        sum.live += 1;
        let (words, message) = match &pod.state {
            PodState::Ready(since) => {
                sum.ready += 1;
                if pod.work.is_some_and(|work| silent.contains(&work)) {
                    sum.silent.push(named(*since));
                }
                continue;
            }
            PodState::Outlived(since, container) => {
                sum.outlived.push(named(*since));
                keep_first(&mut sum.outlived_by, container);
                continue;
            }
            PodState::Going => continue,
            PodState::Pending => {
                sum.pending += 1;
                continue;
            }
            PodState::Unschedulable(message) => (&mut sum.unschedulable, message),
            PodState::CannotStart(message) => (&mut sum.cannot_start, message),
            PodState::Died(_) => continue,
        };
        sum.pending += 1;
        keep_first(words, message);
    }
    sum
}

fn keep_first(words: &mut Option<String>, message: &String) {
    if words.as_ref().is_none_or(|words| message < words) {
        *words = Some(message.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> WorkerPod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"sidecarjob.dev/job-uid": "uid-1"}},
            "spec": {"anything": 1},
            "status": status,
        }))
        .unwrap()
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "worker", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }]})
    }

    #[test]
    fn how_far_a_pod_is() {
        let running = json!({"phase": "Running", "containerStatuses": [{
            "name": "worker", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2025-06-01T10:00:00Z"}},
        }]});
        let unschedulable = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }]});
        let gated = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "x",
        }]});
        for (status, expected) in [
            (running, PodState::Ready(1_748_772_000)),
            (json!({"phase": "Pending"}), PodState::Pending),
            (
                unschedulable,
                PodState::Unschedulable("0/1 nodes are available: 1 Insufficient cpu.".to_owned()),
            ),
            (gated, PodState::Pending),
            (waiting("ContainerCreating", ""), PodState::Pending),
            (
                waiting("ImagePullBackOff", "no such image"),
                PodState::CannotStart("ImagePullBackOff: no such image".to_owned()),
            ),
        ] {
            assert_eq!(
                keep_pod(&pod(status.clone())).unwrap().state,
                expected,
                "{status}"
            );
        }
        assert_eq!(keep_pod(&pod(json!({"phase": "Succeeded"}))), None);
        assert_eq!(keep_pod(&pod(json!({"phase": "Failed"}))), None);
        let mut nobodys = pod(json!({"phase": "Pending"}));
        nobodys.metadata.labels = None;
        assert_eq!(keep_pod(&nobodys), None);
    }

    #[test]
    fn how_a_worker_died_that_could_not_say_so() {
        let ended = |code: i32, reason: &str| {
            json!({"phase": "Failed", "containerStatuses": [{
                "name": "worker", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "reason": reason}},
            }]})
        };
        let kept = |status: &Value| keep_pod(&pod(status.clone())).map(|kept| kept.state);
        let oom = ended(137, "OOMKilled");
        let words = "OOMKilled (exit 137)".to_owned();
        assert_eq!(kept(&oom), Some(PodState::Died(words)));
        let mut spoke = ended(101, "Error");
        let state = &mut spoke["containerStatuses"][0]["state"];
        state["terminated"]["message"] = json!("a line\nthread main panicked: index 7\n");
        let words = "Error (exit 101): thread main panicked: index 7".to_owned();
        assert_eq!(kept(&spoke), Some(PodState::Died(words)));
        // These have said why themselves.
        for code in [1, 2, 4, 5, 143] {
            assert_eq!(kept(&ended(code, "Error")), None);
        }
        let mut evicted = oom;
        evicted["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
        assert_eq!(kept(&evicted), None);
    }

    /// A proxy that something put into the pod knows nothing of the worker's end.
    #[test]
    fn a_container_that_outlives_the_worker_is_named() {
        let container = |name: &str, state: Value| {
            json!({"name": name, "image": "i", "imageID": "", "ready": false,
                   "restartCount": 0, "state": state})
        };
        let running = json!({"running": {"startedAt": "2025-06-01T10:00:00Z"}});
        let over = json!({"terminated": {"exitCode": 0, "finishedAt": "2025-06-01T10:00:07Z"}});
        let of = |worker: &Value| {
            let containers = [
                container("proxy", running.clone()),
                container("worker", worker.clone()),
            ];
            let status = json!({"phase": "Running", "containerStatuses": containers});
            keep_pod(&pod(status)).unwrap().state
        };
        let expected = PodState::Outlived(1_748_772_007, "proxy".to_owned());
        assert_eq!(of(&over), expected);
        assert_eq!(of(&running), PodState::Ready(1_748_772_000));
        // Not ready because something else is.
        assert_eq!(of(&json!({"waiting": {}})), PodState::Pending);
    }

    #[test]
    fn an_init_container_that_can_not_start_is_told_of() {
        let mut status = waiting("PodInitializing", "");
        status["initContainerStatuses"] =
            waiting("ErrImagePull", "no such proxy")["containerStatuses"].clone();
        let expected = PodState::CannotStart("ErrImagePull: no such proxy".to_owned());
        assert_eq!(keep_pod(&pod(status)).unwrap().state, expected);
    }

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let kept = |state| KeptPod {
            owner: "uid-1".to_owned(),
            state,
            uid: "p".to_owned(),
            work: Some((0, 1, 2)),
        };
        let pods = [
            kept(PodState::Ready(7)),
            kept(PodState::Outlived(9, "proxy".to_owned())),
            kept(PodState::Going),
            kept(PodState::Pending),
            kept(PodState::Unschedulable("b".to_owned())),
            kept(PodState::Unschedulable("a".to_owned())),
            kept(PodState::CannotStart("c".to_owned())),
            kept(PodState::Died("d".to_owned())),
        ];
        let key = ObjectKey {
            namespace: "team".to_owned(),
            name: "pod".to_owned(),
        };
        let named = |since_s| PodRef {
            name: "pod".to_owned(),
            uid: "p".to_owned(),
            since_s,
        };
        let expected = ObservedPods {
            live: 7,
            ready: 1,
            pending: 4,
            unschedulable: Some("a".to_owned()),
            cannot_start: Some("c".to_owned()),
            died: Some("d".to_owned()),
            outlived: vec![named(9)],
            outlived_by: Some("proxy".to_owned()),
            silent: vec![named(7)],
        };
        let silent = HashSet::from([(0, 1, 2)]);
        assert_eq!(
            sum_pods(pods.iter().map(|pod| (&key, pod)), &silent),
            expected
        );
        let reversed = pods.iter().rev().map(|pod| (&key, pod));
        assert_eq!(sum_pods(reversed, &silent), expected);
    }
}
