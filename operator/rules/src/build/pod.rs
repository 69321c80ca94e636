//! The pod template of workers.

use std::collections::BTreeMap;

use crds::{Disruption, ImagePullPolicy, SidecarJob, TolerationEffect, TolerationOperator};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, LocalObjectReference, PodSecurityContext,
    PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile, SecurityContext, Toleration,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

use super::{environment, expansion, labels};
use crate::model::{JobSpec, Settings};

/// Name of the container; the Job's rules about exit codes name it.
pub const CONTAINER: &str = "worker";

/// What `/tmp` may hold. The worker writes nothing there but what libraries keep for themselves; an
/// image of somebody's own could fill the node's disk.
const TMP_SIZE: &str = "1Gi";

/// The user and group of the worker image.
const USER: i64 = 65_532;

/// Ask tools that consolidate nodes to leave a running worker alone.
const LEAVE_ALONE: [(&str, &str); 2] = [
    ("karpenter.sh/do-not-disrupt", "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
];

pub(super) fn template(object: &SidecarJob, job: &JobSpec, settings: &Settings) -> PodTemplateSpec {
    let worker = &object.spec.worker;
    let mut pod_labels = worker.pod_labels.clone();
    pod_labels.extend(labels::of(object, job, settings));
    let mut annotations: BTreeMap<String, String> = match worker.disruption {
        Disruption::Avoid => LEAVE_ALONE
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        Disruption::Allow => BTreeMap::new(),
    };
    annotations.extend(worker.pod_annotations.clone());
    annotations.extend(labels::annotations(object, job));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(object, job, settings)),
    }
}

fn pod(object: &SidecarJob, job: &JobSpec, settings: &Settings) -> PodSpec {
    let worker = &object.spec.worker;
    let secrets: Vec<LocalObjectReference> = worker
        .image_pull_secrets
        .iter()
        .map(|secret| LocalObjectReference {
            name: secret.name.clone(),
        })
        .collect();
    PodSpec {
        containers: vec![container(object, job, settings)],
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        service_account_name: worker.service_account_name.clone(),
        termination_grace_period_seconds: Some(worker.termination_grace_period_seconds),
        priority_class_name: worker.priority_class_name.clone(),
        image_pull_secrets: some(secrets),
        node_selector: (!worker.node_selector.is_empty()).then(|| worker.node_selector.clone()),
        tolerations: some(worker.tolerations.iter().map(toleration).collect()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            // Tokens that a cloud's webhook mounts are readable to the group only.
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        volumes: Some(vec![Volume {
            name: "tmp".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity(TMP_SIZE.to_owned())),
                medium: None,
            }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

fn container(object: &SidecarJob, job: &JobSpec, settings: &Settings) -> Container {
    let worker = &object.spec.worker;
    let image = worker.image.as_ref().unwrap_or(&job.image);
    let mut container = Container {
        name: CONTAINER.to_owned(),
        image: Some(image.clone()),
        image_pull_policy: worker.image_pull_policy.map(|policy| {
            match policy {
                ImagePullPolicy::Always => "Always",
                ImagePullPolicy::IfNotPresent => "IfNotPresent",
                ImagePullPolicy::Never => "Never",
            }
            .to_owned()
        }),
        // The entry point of the image is the worker.
        args: Some(arguments(job)),
        env: some(environment::of(object, job.has_identity, settings)),
        resources: worker
            .resources
            .as_ref()
            .map(|resources| ResourceRequirements {
                requests: (!resources.requests.is_empty()).then(|| resources.requests.clone()),
                limits: (!resources.limits.is_empty()).then(|| resources.limits.clone()),
                claims: None,
            }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            ..SecurityContext::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![VolumeMount {
            name: "tmp".to_owned(),
            mount_path: "/tmp".to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    };
    expansion::prevent(&mut container);
    container
}

/// The index comes from `JOB_COMPLETION_INDEX`, which the Job controller sets.
fn arguments(job: &JobSpec) -> Vec<String> {
    [
        "chunk",
        "--output-prefix",
        &job.prefix,
        "--run",
        &job.run,
        "--digest",
        &job.digest,
        "--epoch",
        &job.epoch.to_string(),
        "--batch",
        &job.batch.to_string(),
        "--attempt",
        &job.attempt.to_string(),
        "--log-format",
        "json",
        "--termination-log",
        "/dev/termination-log",
    ]
    .map(str::to_owned)
    .into()
}

fn toleration(given: &crds::Toleration) -> Toleration {
    Toleration {
        key: given.key.clone(),
        operator: given.operator.map(|operator| {
            match operator {
                TolerationOperator::Equal => "Equal",
                TolerationOperator::Exists => "Exists",
            }
            .to_owned()
        }),
        value: given.value.clone(),
        effect: given.effect.map(|effect| {
            match effect {
                TolerationEffect::NoSchedule => "NoSchedule",
                TolerationEffect::PreferNoSchedule => "PreferNoSchedule",
                TolerationEffect::NoExecute => "NoExecute",
            }
            .to_owned()
        }),
        toleration_seconds: given.toleration_seconds,
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
