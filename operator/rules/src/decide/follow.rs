//! A run that is going on, in the order of its steps.

use crds::RunStatus;

use super::draft::Draft;
use super::standing::{Course, Phase, Standing};
use super::{batches, lock, planning, suspend};
use crate::build::frozen_manifest;
use crate::model::Action;

pub(super) fn decide(draft: &mut Draft<'_>, run: &RunStatus) {
    step(draft, run);
    suspend::hold_still(draft);
}

fn step(draft: &mut Draft<'_>, run: &RunStatus) {
    let observed = draft.observed;
    for job in observed.jobs.iter().filter(|job| job.run != run.name) {
        draft.delete(job);
    }
    if let Some(refusal) = &observed.refusal {
        return draft.stand(Standing::new(
            Phase::Stalled,
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
        main: run
            .main_prefix
            .clone()
            .unwrap_or_else(|| draft.object.spec.dataset.main_prefix.clone()),
        manifest: draft
            .is_as_begun
            .then(|| frozen_manifest(draft.object, &prefix)),
        skip_existing: draft.object.spec.output.skip_existing && !run.redo_all,
        prefix,
    });
}
