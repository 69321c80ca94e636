//! Events: what is different between the status as it was and as it will be, in words. So each is
//! told once, and only if its status was written.

use crds::{SidecarJob, SidecarJobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::conditions::Status;
use crate::model::{EventKind, EventNote};
use crate::reasons::{self, types};

pub(super) fn differences(
    object: &SidecarJob,
    before: &SidecarJobStatus,
    after: &SidecarJobStatus,
) -> Vec<EventNote> {
    let mut notes = Vec::new();
    if run_name(before) != run_name(after) {
        run(object, after, &mut notes);
        return notes;
    }
    for kind in types::ALL {
        let (old, new) = (find(before, kind), find(after, kind));
        if key(old) != key(new) {
            condition(kind, old, new, &mut notes);
        }
    }
    batches(before, after, &mut notes);
    workers(before, after, &mut notes);
    failures(before, after, &mut notes);
    let is_verifying = |status: &SidecarJobStatus| status.phase.as_deref() == Some("Verifying");
    if is_verifying(after) && !is_verifying(before) {
        notes.push(normal(
            reasons::VERIFYING,
            "Verify",
            "the output is listed against the plan",
        ));
    }
    notes
}

fn run(object: &SidecarJob, after: &SidecarJobStatus, notes: &mut Vec<EventNote>) {
    let (name, output) = (
        run_name(after).unwrap_or_default(),
        after.output.as_deref().unwrap_or_default(),
    );
    notes.push(normal(
        reasons::RUN_STARTED,
        "Begin",
        format!("run {name} begins, into {output}"),
    ));
    if object.spec.output.prefix.is_none() {
        notes.push(warning(
            reasons::OUTPUT_CHOSEN,
            "Begin",
            format!("spec.output.prefix is not set: the sidecar goes to {output}"),
        ));
    }
}

/// A condition whose status or reason has changed.
fn condition(
    kind: &str,
    old: Option<&Condition>,
    new: Option<&Condition>,
    notes: &mut Vec<EventNote>,
) {
    let Some(new) = new else { return };
    let is_true = new.status == Status::True.word();
    let was_true = old.is_some_and(|old| old.status == Status::True.word());
    let message = new.message.as_str();
    let reason = known(&new.reason);
    match (kind, is_true) {
        (types::PLANNED, true) => notes.push(normal(reason, "Plan", message)),
        (types::CANARY_PASSED, true) => notes.push(normal(reason, "Judge", message)),
        (types::CANARY_PASSED, false) => notes.push(warning(reason, "Judge", message)),
        (types::OUTPUT_LOCKED, true) => notes.push(warning(reason, "Lock", message)),
        (types::OUTPUT_LOCKED, false) if was_true => notes.push(normal(reason, "Lock", message)),
        (types::WORKERS_UNSCHEDULABLE, true) => notes.push(warning(reason, "Schedule", message)),
        (types::WORKERS_UNSCHEDULABLE, false) if was_true => {
            notes.push(normal(reason, "Schedule", message));
        }
        (types::QUEUED, true) => notes.push(normal(reason, "Queue", message)),
        (types::QUEUED, false) if was_true => notes.push(normal(reason, "Queue", message)),
        (types::SUSPENDED, true) => notes.push(normal(reason, "Suspend", message)),
        (types::SUSPENDED, false) if was_true => notes.push(normal(reason, "Resume", message)),
        (types::COMPLETE, true) => notes.push(normal(reason, "End", message)),
        // `Stalled` says it, too, of a run that failed.
        (types::STALLED, true) => notes.push(warning(reason, "Stall", message)),
        (types::READY, _) if reason == reasons::PAUSED_AFTER_CANARY => {
            notes.push(normal(reason, "Pause", message));
        }
        (types::RECONCILING, true)
            if [reasons::PROGRESSING_WITH_RETRY, reasons::SHARDS_MISSING].contains(&reason) =>
        {
            notes.push(warning(reason, "Retry", message));
        }
        (types::RECONCILING, true) if reason == reasons::REPLACING_RUN => {
            notes.push(normal(reason, "Stop", message));
        }
        _ => {}
    }
}

fn batches(before: &SidecarJobStatus, after: &SidecarJobStatus, notes: &mut Vec<EventNote>) {
    for batch in &after.batches {
        let is_same =
            |old: &&crds::BatchStatus| (old.batch, old.attempt) == (batch.batch, batch.attempt);
        let old = before.batches.iter().find(is_same);
        let described = format!(
            "batch {} of {} chunks, Job {}",
            batch.batch, batch.chunks, batch.name
        );
        if old.is_none() && batch.attempt > 1 {
            notes.push(warning(
                reasons::BATCH_RETRIED,
                "Start",
                format!("{described}: attempt {} at what was lost", batch.attempt),
            ));
        } else if old.is_none() && batch.batch == 0 && after.canary.is_some() {
            notes.push(normal(
                reasons::CANARY_STARTED,
                "Start",
                format!("{described}: the canary"),
            ));
        } else if old.is_none() {
            notes.push(normal(reasons::BATCH_STARTED, "Start", described));
        } else if batch.failed > 0 && old.is_some_and(|old| old.failed == 0) {
            notes.push(warning(
                reasons::BATCH_GAVE_UP,
                "GiveUp",
                format!("{described}: {} chunks are not tried again", batch.failed),
            ));
        }
    }
}

fn workers(before: &SidecarJobStatus, after: &SidecarJobStatus, notes: &mut Vec<EventNote>) {
    let workers = |status: &SidecarJobStatus| status.sizing.as_ref().and_then(|s| s.workers);
    let (Some(new), old) = (workers(after), workers(before)) else {
        return;
    };
    if old != Some(new) {
        let limit = after.sizing.as_ref().and_then(|s| s.limited_by.as_deref());
        let limit = limit.map_or_else(String::new, |limit| format!(", limited by {limit}"));
        let from = old.map_or_else(String::new, |old| format!("from {old} "));
        notes.push(normal(
            reasons::SCALED,
            "Scale",
            format!("{from}to {new} workers{limit}"),
        ));
    }
}

fn failures(before: &SidecarJobStatus, after: &SidecarJobStatus, notes: &mut Vec<EventNote>) {
    let failed = |status: &SidecarJobStatus| status.shards.as_ref().map_or(0, |s| s.failed);
    if failed(before) == 0 && failed(after) > 0 {
        let first = after.failures.first().map_or_else(String::new, |failure| {
            format!(", the first: {}: {}", failure.path, failure.reason)
        });
        notes.push(warning(
            reasons::SHARDS_FAILED,
            "Work",
            format!("{} shards failed{first}", failed(after)),
        ));
    }
}

fn run_name(status: &SidecarJobStatus) -> Option<&str> {
    status.run.as_ref().map(|run| run.name.as_str())
}

fn find<'a>(status: &'a SidecarJobStatus, kind: &str) -> Option<&'a Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
}

fn key(condition: Option<&Condition>) -> Option<(&str, &str)> {
    condition.map(|condition| (condition.status.as_str(), condition.reason.as_str()))
}

/// The constant of a word. A word from elsewhere that has none is in the condition.
fn known(word: &str) -> &'static str {
    reasons::ALL
        .iter()
        .copied()
        .find(|reason| *reason == word)
        .unwrap_or(reasons::REFUSED)
}

fn normal(reason: &'static str, action: &'static str, message: impl Into<String>) -> EventNote {
    EventNote {
        kind: EventKind::Normal,
        reason,
        action,
        message: message.into(),
    }
}

fn warning(reason: &'static str, action: &'static str, message: impl Into<String>) -> EventNote {
    EventNote {
        kind: EventKind::Warning,
        ..normal(reason, action, message)
    }
}
