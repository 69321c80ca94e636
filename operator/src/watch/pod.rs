//! What is kept of a worker's pod: a few words of its status.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use crate::build::labels;
use crate::model::ObservedPods;

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
}

/// How far a pod is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PodState {
    /// Its container runs.
    Ready,
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

/// Exit codes of workers that have said why they ended: those of their documentation, and that
/// of one that was asked to end.
const SPOKEN: [i32; 6] = [1, 2, 3, 4, 5, 143];

/// What is kept of `pod`; `None` if it has ended as a worker does, or is nobody's.
pub fn keep_pod(pod: &WorkerPod) -> Option<KeptPod> {
    let owner = pod.metadata.labels.as_ref()?.get(labels::JOB_UID)?.clone();
    let state = match pod.status.phase.as_str() {
        "Succeeded" => return None,
        "Failed" => PodState::Died(death(&pod.status)?),
        _ => state(&pod.status),
    };
    Some(KeptPod { owner, state })
}

/// How a worker ended that could not say so itself, and was not asked to go.
fn death(status: &WorkerPodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter();
    if conditions.any(|condition| condition.type_ == "DisruptionTarget") {
        return None;
    }
    let mut containers = status.container_statuses.iter();
    let ended = containers.find_map(|container| container.state.as_ref()?.terminated.as_ref())?;
    if SPOKEN.contains(&ended.exit_code) {
        return None;
    }
    let reason = ended.reason.as_deref().unwrap_or("Error");
    Some(format!("{reason} (exit {})", ended.exit_code))
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
    for container in &status.container_statuses {
        let Some(container_state) = &container.state else {
            continue;
        };
        if container_state.running.is_some() {
            return PodState::Ready;
        }
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

/// The pods of one SidecarJob, summed. Of several messages the first by its text counts, so
/// that it stays the same whatever the order.
pub fn sum_pods<'a>(pods: impl IntoIterator<Item = &'a KeptPod>) -> ObservedPods {
    let mut sum = ObservedPods::default();
    for pod in pods {
        if let PodState::Died(message) = &pod.state {
            keep_first(&mut sum.died, message);
            continue;
        }
        sum.live += 1;
        let (words, message) = match &pod.state {
            PodState::Ready => {
                sum.ready += 1;
                continue;
            }
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
            (running, PodState::Ready),
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
        // These have said why themselves.
        for code in [1, 2, 4, 5, 143] {
            assert_eq!(kept(&ended(code, "Error")), None);
        }
        let mut evicted = oom;
        evicted["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
        assert_eq!(kept(&evicted), None);
    }

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let kept = |state| KeptPod {
            owner: "uid-1".to_owned(),
            state,
        };
        let pods = [
            kept(PodState::Ready),
            kept(PodState::Pending),
            kept(PodState::Unschedulable("b".to_owned())),
            kept(PodState::Unschedulable("a".to_owned())),
            kept(PodState::CannotStart("c".to_owned())),
            kept(PodState::Died("d".to_owned())),
        ];
        let expected = ObservedPods {
            live: 5,
            ready: 1,
            pending: 4,
            unschedulable: Some("a".to_owned()),
            cannot_start: Some("c".to_owned()),
            died: Some("d".to_owned()),
        };
        assert_eq!(sum_pods(&pods), expected);
        assert_eq!(sum_pods(pods.iter().rev()), expected);
    }
}
