//! The writer lock of the output.

use crds::RunStatus;

use super::draft::Draft;
use super::standing::{Course, Phase, Standing};
use crate::conditions::Status;
use crate::model::{LockFacts, RunFacts};
use crate::reasons::{self, types};

/// The epoch in which the lock is held; without it nothing more is done than to wait for it.
pub(super) fn epoch(draft: &mut Draft<'_>, run: &RunStatus, facts: &RunFacts) -> Option<u64> {
    match &facts.lock {
        LockFacts::Held { epoch } => {
            held(draft, run, *epoch);
            Some(*epoch)
        }
        LockFacts::Waiting { holder } => {
            let message = format!(
                "{holder} holds the output; this job waits, and starts by itself once it is free"
            );
            wait(draft, run, reasons::HELD_BY_ANOTHER, message);
            None
        }
        LockFacts::Lost { by } => {
            let message = format!(
                "the writer lock was lost to {by}; the workers were stopped, and this job goes on \
                 once the output is free"
            );
            wait(draft, run, reasons::LOCK_LOST, message);
            None
        }
        LockFacts::Idle | LockFacts::Acquiring | LockFacts::Released => {
            if !draft.was_true(types::PLANNED) {
                let message = format!("run {}: taking the writer lock of the output", run.name);
                draft.stand(Standing::moving(Phase::Pending, message));
            }
            None
        }
    }
}

fn held(draft: &mut Draft<'_>, run: &RunStatus, epoch: u64) {
    draft.conditions.set(
        types::OUTPUT_LOCKED,
        Status::False,
        reasons::HELD_BY_THIS_JOB,
        "this job holds the writer lock of the output until its run ends",
    );
    if let Some(status) = &mut draft.status.run {
        status.epoch = Some(i64::try_from(epoch).unwrap_or(i64::MAX));
    }
    // Workers of an older epoch can publish nothing more; their items are started again.
    let observed = draft.observed;
    for job in &observed.jobs {
        if job.run == run.name && job.epoch != epoch {
            draft.delete(job);
        }
    }
}

fn wait(draft: &mut Draft<'_>, run: &RunStatus, reason: &str, message: String) {
    let observed = draft.observed;
    for job in observed.jobs.iter().filter(|job| job.run == run.name) {
        draft.delete(job);
    }
    draft
        .conditions
        .set(types::OUTPUT_LOCKED, Status::True, reason, &message);
    draft.stand(Standing::new(
        Phase::Pending,
        Course::Moving,
        reason,
        message,
    ));
}
