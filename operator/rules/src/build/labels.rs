//! Labels and annotations of Jobs and pods. Values that may be long are annotations.

use std::collections::BTreeMap;

use crds::SidecarJob;
use kube::ResourceExt;

use crate::model::{JobSpec, Settings};

/// `metadata.uid` of the SidecarJob: how Jobs and pods are found.
pub const JOB_UID: &str = "sidecarjob.dev/job-uid";
/// The run.
pub const RUN: &str = "sidecarjob.dev/run";
/// Number of the batch.
pub const BATCH: &str = "sidecarjob.dev/batch";
/// Number of the attempt at the batch.
pub const ATTEMPT: &str = "sidecarjob.dev/attempt";
/// Fencing number that the workers carry.
pub const EPOCH: &str = "sidecarjob.dev/epoch";
/// Number of a pod's item within its Job: the Job controller's own label.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The Kueue queue that decides when a Job may run.
pub const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// The Kueue class that decides which Jobs go first: copied from the SidecarJob to Jobs in a queue.
pub const QUEUE_PRIORITY: &str = "kueue.x-k8s.io/priority-class";
/// Annotation: the fewest workers that Kueue may let in.
pub const QUEUE_LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";

/// Annotation: name of the SidecarJob, which may be longer than a label.
pub const JOB_NAME: &str = "sidecarjob.dev/job-name";
/// Annotation: effective output prefix.
pub const OUTPUT: &str = "sidecarjob.dev/output";

/// Annotation of a Job: digest of the pod template that it was built with.
pub const TEMPLATE: &str = "sidecarjob.dev/pod-template";

/// Annotation of a Job: this operator suspended it, and may resume it.
pub const SUSPENDED: &str = "sidecarjob.dev/suspended";

/// Annotation of a SidecarJob by which somebody asks for another run: any new text.
pub const RERUN_REQUESTED_AT: &str = "sidecarjob.dev/rerun-requested-at";
/// Annotation: `failed-only` (what is not in the output; the default) or `all`.
pub const RERUN_MODE: &str = "sidecarjob.dev/rerun-mode";

/// Labels by which tools find what they manage: a Job that carried one would be pruned by them.
const NEVER_COPIED: [&str; 3] = [
    "app.kubernetes.io/instance",
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
];

/// Labels that Jobs and pods share.
pub fn of(object: &SidecarJob, job: &JobSpec, settings: &Settings) -> BTreeMap<String, String> {
    let copied = object
        .labels()
        .iter()
        .filter(|(key, _)| {
            settings.copied_labels.contains(key) && !NEVER_COPIED.contains(&key.as_str())
        })
        .map(|(key, value)| (key.clone(), value.clone()));
    let own = [
        (JOB_UID, object.uid().unwrap_or_default()),
        (RUN, job.run.clone()),
        (BATCH, job.batch.to_string()),
        (ATTEMPT, job.attempt.to_string()),
        (EPOCH, job.epoch.to_string()),
        ("app.kubernetes.io/name", "sidecarjob-worker".to_owned()),
        ("app.kubernetes.io/component", "worker".to_owned()),
        (
            "app.kubernetes.io/managed-by",
            "sidecarjob-operator".to_owned(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value));
    copied.chain(own).collect()
}

/// Annotations that Jobs and pods share.
pub fn annotations(object: &SidecarJob, job: &JobSpec) -> BTreeMap<String, String> {
    BTreeMap::from([
        (JOB_NAME.to_owned(), object.name_any()),
        (OUTPUT.to_owned(), job.prefix.clone()),
    ])
}
