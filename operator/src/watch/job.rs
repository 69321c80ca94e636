//! What is kept of a Job.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use rules::build::labels;
use rules::model::{JobEnd, ObservedJob};

/// A Job of a SidecarJob.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptJob {
    /// Uid of the SidecarJob that controls it.
    pub owner: String,
    /// What decisions rest on.
    pub observed: ObservedJob,
}

/// What is kept of `job`; `None` if it isn't one that a SidecarJob controls, whatever labels it
/// has.
pub fn keep_job(job: &Job) -> Option<KeptJob> {
    let owner = controller_uid(&job.metadata)?;
    let empty = BTreeMap::new();
    let labels = job.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = job.metadata.annotations.as_ref().unwrap_or(&empty);
    if labels.get(labels::JOB_UID).map(String::as_str) != Some(owner) {
        return None;
    }
    let number = |key| labels.get(key).and_then(|text| text.parse::<u64>().ok());
    let small = |key| number(key).and_then(|number| u32::try_from(number).ok());
    let spec = job.spec.as_ref()?;
    let no_status = JobStatus::default();
    let status = job.status.as_ref().unwrap_or(&no_status);
    let active = count(status.active);
    let terminating = count(status.terminating);
    Some(KeptJob {
        owner: owner.to_owned(),
        observed: ObservedJob {
            name: job.metadata.name.clone()?,
            uid: job.metadata.uid.clone().unwrap_or_default(),
            resource_version: job.metadata.resource_version.clone().unwrap_or_default(),
            run: labels.get(labels::RUN)?.clone(),
            batch: small(labels::BATCH)?,
            attempt: small(labels::ATTEMPT)?,
            epoch: number(labels::EPOCH)?,
            is_suspended: spec.suspend.unwrap_or_default(),
            is_suspended_by_us: annotations.contains_key(labels::SUSPENDED),
            queue: labels.get(labels::QUEUE).cloned(),
            template: annotations.get(labels::TEMPLATE).cloned(),
            parallelism: count(spec.parallelism),
            completions: count(spec.completions),
            active,
            ready: count(status.ready),
            terminating,
            has_had_pods: has_had_pods(status),
            succeeded: count(status.succeeded),
            failed_indexes: count_intervals(status.failed_indexes.as_deref().unwrap_or_default()),
            end: end(
                status.conditions.as_deref().unwrap_or_default(),
                active + terminating == 0,
            ),
            is_deleting: job.metadata.deletion_timestamp.is_some(),
        },
    })
}

fn controller_uid(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_ref()?;
    let controller = owners.iter().find(|owner| {
        owner.controller == Some(true)
            && owner.kind == "SidecarJob"
            && owner.api_version.split('/').next() == Some(crds::GROUP)
    })?;
    Some(&controller.uid)
}

fn count(number: Option<i32>) -> u32 {
    number.map_or(0, |number| u32::try_from(number).unwrap_or_default())
}

/// Whether any pod of it was ever made, as far as its status knows.
fn has_had_pods(status: &JobStatus) -> bool {
    let counts = [
        status.active,
        status.terminating,
        status.ready,
        status.succeeded,
        status.failed,
    ];
    let texts = [&status.completed_indexes, &status.failed_indexes];
    counts.into_iter().any(|number| count(number) > 0)
        || texts.into_iter().flatten().any(|text| !text.is_empty())
}

/// How it ended. The conditions that come first say so before the last pod is gone, and are
/// final; they count from then on.
fn end(conditions: &[JobCondition], has_no_pod: bool) -> Option<JobEnd> {
    let find = |kind| {
        conditions
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == "True")
    };
    let early = |kind| find(kind).filter(|_| has_no_pod);
    if let Some(failed) = find("Failed").or_else(|| early("FailureTarget")) {
        return Some(JobEnd::Failed {
            reason: failed.reason.clone().unwrap_or_default(),
            message: failed.message.clone().unwrap_or_default(),
        });
    }
    let complete = find("Complete").or_else(|| early("SuccessCriteriaMet"));
    complete.map(|_| JobEnd::Complete)
}

/// How many numbers a text such as `1,3-5,7` names. The API server writes it; what can't be
/// read counts as nothing.
fn count_intervals(text: &str) -> u32 {
    let lengths = text.split(',').map(|interval| {
        let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
        match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last => (last - first).saturating_add(1),
            _ => 0,
        }
    });
    lengths.fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(status: serde_json::Value) -> Job {
        serde_json::from_value(json!({
            "metadata": {
                "name": "photos-0", "namespace": "team", "uid": "uid-j", "resourceVersion": "7",
                "labels": {
                    "sidecarjob.dev/job-uid": "uid-1", "sidecarjob.dev/run": "run-1",
                    "sidecarjob.dev/batch": "3", "sidecarjob.dev/attempt": "2",
                    "sidecarjob.dev/epoch": "5", "kueue.x-k8s.io/queue-name": "q",
                },
                "annotations": {"sidecarjob.dev/pod-template": "0123456789abcdef"},
                "ownerReferences": [{
                    "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
                    "name": "photos", "uid": "uid-1", "controller": true,
                }],
            },
            "spec": {
                "suspend": true, "parallelism": 4, "completions": 9,
                "template": {"spec": {"containers": []}},
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_job_is_read() {
        let kept = keep_job(&job(json!({
            "active": 2, "ready": 1, "terminating": 1, "succeeded": 3, "failedIndexes": "0,2-3",
        })))
        .unwrap();
        assert_eq!(kept.owner, "uid-1");
        let expected = ObservedJob {
            name: "photos-0".to_owned(),
            uid: "uid-j".to_owned(),
            resource_version: "7".to_owned(),
            run: "run-1".to_owned(),
            batch: 3,
            attempt: 2,
            epoch: 5,
            is_suspended: true,
            is_suspended_by_us: false,
            queue: Some("q".to_owned()),
            template: Some("0123456789abcdef".to_owned()),
            parallelism: 4,
            completions: 9,
            active: 2,
            ready: 1,
            terminating: 1,
            has_had_pods: true,
            succeeded: 3,
            failed_indexes: 3,
            end: None,
            is_deleting: false,
        };
        assert_eq!(kept.observed, expected);
    }

    #[test]
    fn foreign_jobs_are_none_of_ours() {
        let mut other_owner = job(json!({}));
        let owners = other_owner.metadata.owner_references.as_mut().unwrap();
        owners[0].uid = "uid-2".to_owned();
        assert_eq!(keep_job(&other_owner), None);

        let mut no_owner = job(json!({}));
        no_owner.metadata.owner_references = None;
        assert_eq!(keep_job(&no_owner), None);

        let mut other_kind = job(json!({}));
        let owners = other_kind.metadata.owner_references.as_mut().unwrap();
        owners[0].api_version = "example.com/v1".to_owned();
        assert_eq!(keep_job(&other_kind), None);

        let mut odd = job(json!({}));
        let labels = odd.metadata.labels.as_mut().unwrap();
        labels.insert(labels::BATCH.to_owned(), "many".to_owned());
        assert_eq!(keep_job(&odd), None);
    }

    #[test]
    fn how_a_job_ends() {
        let failed = || {
            Some(JobEnd::Failed {
                reason: "FailedIndexes".to_owned(),
                message: "words".to_owned(),
            })
        };
        for (kind, active, expected) in [
            ("Complete", 0, Some(JobEnd::Complete)),
            ("Failed", 0, failed()),
            ("FailureTarget", 1, None),
            ("FailureTarget", 0, failed()),
            ("SuccessCriteriaMet", 1, None),
            ("SuccessCriteriaMet", 0, Some(JobEnd::Complete)),
            ("Suspended", 0, None),
        ] {
            let status = json!({
                "active": active,
                "conditions": [{
                    "type": kind, "status": "True", "reason": "FailedIndexes", "message": "words",
                }],
            });
            let end = keep_job(&job(status)).unwrap().observed.end;
            assert_eq!(end, expected, "{kind} with {active} pods");
        }
    }

    #[test]
    fn intervals_are_counted() {
        for (text, expected) in [
            ("", 0),
            ("7", 1),
            ("1,3-5,7", 5),
            ("5-3", 0),
            ("x,1", 1),
            ("0-4294967295", u32::MAX),
        ] {
            assert_eq!(count_intervals(text), expected, "{text:?}");
        }
    }
}
