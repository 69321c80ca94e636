//! What a SidecarJob says of itself.

use crds::{ShardCounts, SidecarJob};

/// Status of a condition.
pub fn condition<'a>(object: &'a SidecarJob, kind: &str) -> Option<&'a str> {
    let conditions = &object.status.as_ref()?.conditions;
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == kind)?;
    Some(&found.status)
}

/// Reason and message of a condition.
pub fn words<'a>(object: &'a SidecarJob, kind: &str) -> (&'a str, &'a str) {
    let conditions = object.status.as_ref().map(|status| &status.conditions);
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == kind);
    found.map_or(("", ""), |found| (&found.reason, &found.message))
}

pub fn is_true(object: &SidecarJob, kind: &str) -> bool {
    condition(object, kind) == Some("True")
}

pub fn phase(object: &SidecarJob) -> &str {
    let phase = object
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

pub fn counts(object: &SidecarJob) -> ShardCounts {
    let status = object.status.as_ref();
    status
        .and_then(|status| status.shards.clone())
        .unwrap_or_default()
}
