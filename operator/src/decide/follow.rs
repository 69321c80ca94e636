//! A run that is going on, in the order of its steps.

use crds::RunStatus;

use super::draft::{Draft, RESTING};
use super::standing::{Course, Phase, Standing};
use super::{batches, begin, lock, planning};
use crate::build::frozen_manifest;
use crate::model::Action;

pub(super) fn decide(draft: &mut Draft<'_>, run: &RunStatus) {
    step(draft, run);
    let is_stuck = draft
        .standing
        .as_ref()
        .is_some_and(|standing| standing.course == Course::Stuck);
    if draft.is_suspended() && !draft.has_ended() && !is_stuck {
        draft.requeue = RESTING;
        draft.stand(begin::suspended(
            "what is finished stays, and the output stays locked by this job",
        ));
    }
}

fn step(draft: &mut Draft<'_>, run: &RunStatus) {
    let observed = draft.observed;
    for job in observed.jobs.iter().filter(|job| job.run != run.name) {
        draft.delete(job);
    }
    if let Some(refusal) = &observed.refusal {
        return draft.stand(Standing::new(
            phase_before(draft),
            Course::Stuck,
            refusal.reason,
            refusal.message.clone(),
        ));
    }
    hold(draft, run);
    let Some(facts) = draft.facts(run) else {
        // Nothing is known since the operator started: everything stays as it was.
        return;
    };
    if planning::is_refused(draft, &facts) {
        return;
    }
    let Some(epoch) = lock::epoch(draft, run, &facts) else {
        return;
    };
    let Some(totals) = planning::totals(draft, &facts) else {
        return;
    };
    if facts.batches_loaded {
        batches::decide(draft, run, &facts, &totals, epoch);
    }
}

fn hold(draft: &mut Draft<'_>, run: &RunStatus) {
    let prefix = draft.before.output.clone().unwrap_or_default();
    draft.actions.push(Action::Hold {
        run: run.name.clone(),
        digest: run.pipeline_digest.clone().unwrap_or_default(),
        replaces: run.replaces.clone(),
        manifest: frozen_manifest(draft.object, &prefix),
        skip_existing: draft.object.spec.output.skip_existing && !run.redo_all,
        prefix,
    });
}

/// The phase that the status has, for standings that say nothing about it.
pub(super) fn phase_before(draft: &Draft<'_>) -> Phase {
    [
        Phase::Planning,
        Phase::Canary,
        Phase::Running,
        Phase::Verifying,
    ]
    .into_iter()
    .find(|phase| draft.before.phase.as_deref() == Some(phase.word()))
    .unwrap_or(Phase::Pending)
}
