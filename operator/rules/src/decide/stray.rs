//! Pods that would stand about for ever: whose worker has ended beside a container that doesn't know
//! of it, or hangs. They are ended; what their items have is kept, and the Job goes on.

use super::draft::{Draft, RESTING};
use crate::model::{Action, EventKind, EventNote, PodRef};
use crate::reasons;

/// Seconds that other containers have to end after the worker.
const OUTLIVED_SECONDS: i64 = 30;

/// Ends such pods, and says so; the words for the message.
pub(super) fn end(draft: &mut Draft<'_>) -> Option<String> {
    let outlived = outlived(draft);
    let silent = silent(draft);
    outlived.or(silent)
}

fn outlived(draft: &mut Draft<'_>) -> Option<String> {
    let pods = &draft.observed.pods;
    let container = pods.outlived_by.as_deref()?;
    let words = format!(
        "the container {container} runs on in {} pods after their worker has ended, and they are \
         deleted: make it a native sidecar (an init container with restartPolicy Always), or keep \
         it out by worker.podAnnotations",
        pods.outlived.len()
    );
    if end_those(draft, &pods.outlived, OUTLIVED_SECONDS) {
        tell(draft, reasons::WORKER_OUTLIVED, &words);
    }
    Some(words)
}

fn silent(draft: &mut Draft<'_>) -> Option<String> {
    let pods = &draft.observed.pods.silent;
    let seconds = draft.observed.settings.silent_seconds.max(1);
    let first = pods.iter().find(|pod| is_due(draft, pod, seconds))?;
    let words = format!(
        "{} workers run, but have reported nothing for {seconds} s, and are replaced, the first: \
         {}",
        pods.len(),
        first.name
    );
    if end_those(draft, pods, seconds) {
        tell(draft, reasons::WORKER_SILENT, &words);
    }
    Some(words)
}

fn is_due(draft: &Draft<'_>, pod: &PodRef, seconds: i64) -> bool {
    draft.now.as_second().saturating_sub(pod.since_s) >= seconds
}

/// Whether any is ended now; those whose time is still to come are looked at then.
fn end_those(draft: &mut Draft<'_>, pods: &[PodRef], seconds: i64) -> bool {
    let mut is_any = false;
    let mut next = i64::try_from(RESTING.as_secs()).unwrap_or(i64::MAX);
    for pod in pods {
        if is_due(draft, pod, seconds) {
            is_any = true;
            draft.actions.push(Action::EndPod {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            });
        } else {
            next = next.min(pod.since_s.saturating_add(seconds) - draft.now.as_second());
        }
    }
    draft.look_again_in(next);
    is_any
}

fn tell(draft: &mut Draft<'_>, reason: &'static str, words: &str) {
    draft.notes.push(EventNote {
        kind: EventKind::Warning,
        reason,
        action: "Replace",
        message: words.to_owned(),
    });
}
