//! A run that has ended stays as it is: no Job that is missing, no restart and no look at the store
//! brings it back. Only a person does, by a change of the spec or by asking for another run.

use crds::{OnSpecChange, RunStatus};

use super::begin::{self, Terms};
use super::draft::{Draft, RESTING};
use super::seal;
use super::standing::{Course, Phase, Standing};
use super::wanted::Wanted;
use crate::model::Action;
use crate::reasons::types;

/// So long after the end of a run it is worth a look whether its lock was given up.
const LOCK_IS_LEFT_FOR_SECONDS: i64 = 900;

pub(super) fn decide(draft: &mut Draft<'_>, run: &RunStatus, wanted: Result<Wanted, String>) {
    draft.requeue = RESTING;
    stay(draft);
    let is_down = draft.wind_down();
    abandon(draft, run);
    let is_free = is_down && !draft.is_suspended();
    match next(draft, run, wanted) {
        Next::Begin(wanted, terms) if is_free => begin::begin(draft, &wanted, &terms),
        // Whatever it waits for is told: an edit of the spec, the end of a Job, the lock.
        Next::Begin(..) => {}
        Next::Object(reason, message) => {
            draft.objection = Some((reason, message));
            expire(draft, run);
        }
        Next::Nothing => expire(draft, run),
    }
}

/// A process before this one may have ended before it gave the lock up. After a while it has
/// expired anyhow.
fn abandon(draft: &mut Draft<'_>, run: &RunStatus) {
    let finished = run.finished_at.as_ref();
    let is_recent = finished.is_some_and(|at| draft.seconds_since(at.0) < LOCK_IS_LEFT_FOR_SECONDS);
    if draft.observed.run.is_none() && draft.observed.jobs.is_empty() && is_recent {
        draft.actions.push(Action::Abandon {
            run: run.name.clone(),
            prefix: draft.before.output.clone().unwrap_or_default(),
        });
    }
}

/// What comes after a run.
enum Next {
    Nothing,
    Begin(Wanted, Terms),
    Object(&'static str, String),
}

fn next(draft: &Draft<'_>, run: &RunStatus, wanted: Result<Wanted, String>) -> Next {
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(message) => return Next::Object(crate::reasons::INVALID_SPEC, message),
    };
    let token = begin::rerun_token(draft.object);
    if token.is_some() && token != draft.before.last_handled_rerun {
        let terms = Terms {
            redo_all: begin::wants_all(draft.object),
            token,
        };
        return Next::Begin(wanted, terms);
    }
    let output = draft.before.output.as_deref().unwrap_or_default();
    if wanted.is(run, output) {
        return Next::Nothing;
    }
    if wanted.on_change == OnSpecChange::Reject && draft.was_true(types::PLANNED) {
        let (reason, message) = begin::rejected(&wanted, run, output);
        return Next::Object(reason, message);
    }
    Next::Begin(wanted, Terms::default())
}

/// The standing of the end, from the condition that has kept it.
fn stay(draft: &mut Draft<'_>) {
    let ends = [
        (types::COMPLETE, Phase::Succeeded, Course::Complete),
        (types::FAILED, Phase::Failed, Course::Failed),
    ];
    let standing = ends.into_iter().find_map(|(kind, phase, course)| {
        let condition = draft.conditions.get(kind)?;
        Some(Standing::new(
            phase,
            course,
            &condition.reason,
            condition.message.clone(),
        ))
    });
    draft.standing = standing;
    for kind in seal::WHILE_IT_GOES_ON {
        draft.conditions.remove(kind);
    }
}

/// Deletes the object once its time to live is over.
fn expire(draft: &mut Draft<'_>, run: &RunStatus) {
    let Some(lifetime) = draft.object.spec.ttl_seconds_after_finished else {
        return;
    };
    let Some(finished) = run.finished_at.as_ref() else {
        return;
    };
    let left = i64::from(lifetime) - draft.seconds_since(finished.0);
    if left <= 0 {
        draft.actions.push(Action::DeleteObject);
    } else {
        draft.look_again_in(left);
    }
}
