//! The Indexed Job of an attempt at a batch.

use crds::SidecarJob;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec as KubernetesJobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

use super::{labels, pod};
use crate::model::{JobSpec, Settings};

/// Exit codes of a worker, as its documentation has them.
mod exits {
    /// Some shards failed for reasons of their own; it can't ever work; the store refuses.
    pub(super) const NO_RETRY: [i32; 3] = [1, 2, 3];
    /// Another holds the output.
    pub(super) const LOCK_LOST: i32 = 4;
    /// It was told to stop, and stopped.
    pub(super) const STOPPED: i32 = 143;
}

/// How often the Job controller starts the pod of an index again. What is lost then, to a node
/// that crashed for example, goes into a further attempt.
const RETRIES_OF_AN_INDEX: i32 = 2;

/// The Job. It has no time to live and no deadline: the operator deletes it, and a deadline would
/// count the time in a queue.
pub fn job(object: &SidecarJob, job: &JobSpec, settings: &Settings) -> Job {
    let mut job_labels = labels::of(object, job, settings);
    let mut annotations = labels::annotations(object, job);
    if let Some(queue) = &object.spec.queue {
        job_labels.insert(labels::QUEUE.to_owned(), queue.clone());
        if let Some(class) = object.labels().get(labels::QUEUE_PRIORITY) {
            job_labels.insert(labels::QUEUE_PRIORITY.to_owned(), class.clone());
        }
        // Kueue takes only less than all of them for a least number.
        if job.parallelism > 1 {
            annotations.insert(labels::QUEUE_LEAST.to_owned(), "1".to_owned());
        }
    }
    let completions = int(job.completions);
    let template = pod::template(object, job, settings);
    annotations.insert(labels::TEMPLATE.to_owned(), digest(&template));
    Job {
        metadata: ObjectMeta {
            name: Some(job.name.clone()),
            namespace: object.namespace(),
            labels: Some(job_labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(object)]),
            ..ObjectMeta::default()
        },
        spec: Some(KubernetesJobSpec {
            completion_mode: Some("Indexed".to_owned()),
            completions: Some(completions),
            parallelism: Some(int(job.parallelism)),
            suspend: Some(job.suspend),
            backoff_limit_per_index: Some(RETRIES_OF_AN_INDEX),
            max_failed_indexes: Some(completions),
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(failure_policy()),
            template,
            ..KubernetesJobSpec::default()
        }),
        status: None,
    }
}

/// Digest of the pod template of the Job that [`job`] builds, as its annotation has it.
pub fn template_digest(object: &SidecarJob, job: &JobSpec, settings: &Settings) -> String {
    digest(&pod::template(object, job, settings))
}

/// A few digits tell the templates of one Job apart.
fn digest(template: &PodTemplateSpec) -> String {
    // Plain data under text keys, which can't fail.
    let text = serde_json::to_vec(template).unwrap_or_default();
    let hash = Sha256::digest(text);
    let digits = hash.iter().take(8);
    digits.map(|byte| format!("{byte:02x}")).collect()
}

/// The first rule that applies decides; what none names counts against the index's retries.
fn failure_policy() -> PodFailurePolicy {
    let rule = |action: &str, container: Option<&str>, operator: &str, values: &[i32]| {
        PodFailurePolicyRule {
            action: action.to_owned(),
            on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                container_name: container.map(str::to_owned),
                operator: operator.to_owned(),
                values: values.to_vec(),
            }),
            on_pod_conditions: None,
        }
    };
    let on_exit = |action, values| rule(action, Some(pod::CONTAINER), "In", values);
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule {
                action: "Ignore".to_owned(),
                on_exit_codes: None,
                on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                    type_: "DisruptionTarget".to_owned(),
                    status: Some("True".to_owned()),
                }]),
            },
            // Whoever ends a pod need not say so in its conditions: the Job controller where there are
            // to be fewer, a queue, a person. The worker did no wrong.
            on_exit("Ignore", &[exits::STOPPED]),
            on_exit("FailJob", &[exits::LOCK_LOST]),
            on_exit("FailIndex", &exits::NO_RETRY),
            rule("Count", Some(pod::CONTAINER), "NotIn", &[0]),
            // The worker has ended well, and a container that somebody put beside it has not, or was
            // ended since it ran on. The work is done, and would be looked at again for nothing.
            rule("FailIndex", None, "NotIn", &[0]),
        ],
    }
}

fn owner(object: &SidecarJob) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/{}", crds::GROUP, crds::VERSION),
        kind: "SidecarJob".to_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
