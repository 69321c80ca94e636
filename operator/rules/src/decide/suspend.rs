//! `spec.suspend`: workers stop by what is observed alone, whatever else is known of the run or can
//! be reached.

use super::draft::{Draft, RESTING};
use super::standing::{Course, Phase, Standing};
use crate::conditions::Status;
use crate::model::{Action, Observed, ObservedJob};
use crate::reasons::{self, types};

/// What stops the workers of a suspended job: to be done before anything else is even asked for.
pub fn stop(observed: &Observed) -> Vec<Action> {
    working(observed).map(stop_job).collect()
}

/// Jobs that are to stop, and have not.
fn working(observed: &Observed) -> impl Iterator<Item = &ObservedJob> {
    let object = &observed.object;
    let status = object.status.as_ref();
    let run = status.and_then(|status| status.run.as_ref());
    let has_ended = run.is_some_and(|run| run.finished_at.is_some());
    let is_asked = object.spec.suspend && !has_ended && !is_going(observed);
    let jobs = observed.jobs.iter().filter(move |_| is_asked);
    jobs.filter(|job| job.is_live() && (job.queue.is_some() || !job.is_suspended))
}

fn is_going(observed: &Observed) -> bool {
    observed.object.metadata.deletion_timestamp.is_some()
}

/// A Job keeps what it has done. One that is in a queue belongs to the queue, which would start it
/// again: it goes, and its items go into another attempt later on.
fn stop_job(job: &ObservedJob) -> Action {
    match job.queue {
        Some(_) => Action::DeleteJob {
            name: job.name.clone(),
        },
        None => Action::Suspend {
            name: job.name.clone(),
            resource_version: job.resource_version.clone(),
            suspend: true,
        },
    }
}

/// The standing of a suspended job.
pub(super) fn standing(detail: &str) -> Standing {
    Standing::new(
        Phase::Suspended,
        Course::Resting,
        reasons::SUSPENDED,
        format!("suspended; {detail}; set spec.suspend to false to go on"),
    )
}

/// Whether what `spec.suspend` asks for is done by the time that the status is written.
fn is_carried_out(draft: &Draft<'_>) -> bool {
    !draft.is_undone || working(draft.observed).next().is_none()
}

/// A run that goes on stands still, unless something else is in its way that a person has to mend.
pub(super) fn hold_still(draft: &mut Draft<'_>) {
    let standing_of_step = draft.standing.as_ref();
    let is_stuck = standing_of_step.is_some_and(|standing| standing.course == Course::Stuck);
    if !draft.is_suspended() || draft.has_ended() || is_stuck {
        return;
    }
    if is_carried_out(draft) {
        draft.requeue = RESTING;
        draft.stand(standing(
            "what is finished stays, and the output stays locked by this job",
        ));
    } else {
        let count = working(draft.observed).count();
        draft.standing = Some(Standing::moving(
            draft.phase_before(),
            format!("{count} Jobs are still to be suspended"),
        ));
    }
}

/// The condition: of what was done, not of what was asked for.
pub(super) fn set_condition(draft: &mut Draft<'_>) {
    if draft.has_ended() {
        draft.conditions.remove(types::SUSPENDED);
    } else if draft.is_suspended() {
        if is_carried_out(draft) {
            let message = "spec.suspend is true; set it to false to go on";
            draft
                .conditions
                .set(types::SUSPENDED, Status::True, reasons::SUSPENDED, message);
        }
    } else if draft.conditions.get(types::SUSPENDED).is_some() && !draft.is_undone {
        let message = "spec.suspend is false";
        draft
            .conditions
            .set(types::SUSPENDED, Status::False, reasons::RESUMED, message);
    }
}
