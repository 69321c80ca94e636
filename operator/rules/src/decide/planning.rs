//! The plan of a run.

use crds::CanaryStatus;

use super::canary;
use super::draft::{AT_ONCE, Draft};
use super::seal;
use super::standing::{Course, Phase, Standing};
use crate::conditions::Status;
use crate::model::{Action, PlanFacts, PlanTotals, RunFacts};
use crate::reasons::{self, types};

/// Whether the plan, or even a look at the prefixes, is refused.
pub(super) fn is_refused(draft: &mut Draft<'_>, facts: &RunFacts) -> bool {
    let PlanFacts::Refused { reason, message } = &facts.plan else {
        return false;
    };
    let may_be_mended = [
        reasons::ACCESS_DENIED,
        reasons::BUCKET_NOT_FOUND,
        reasons::STORE_UNUSABLE,
    ];
    if may_be_mended.contains(&reason.as_str()) {
        let standing = Standing::new(Phase::Stalled, Course::Stuck, reason, message.clone());
        draft.stand(standing);
    } else {
        seal::fail(draft, reason, message.clone());
    }
    true
}

/// What the plan holds, once it is made and the API server knows.
pub(super) fn totals(draft: &mut Draft<'_>, facts: &RunFacts) -> Option<PlanTotals> {
    match &facts.plan {
        PlanFacts::None => {
            if !draft.is_suspended() {
                draft.actions.push(Action::Plan);
            }
            draft.stand(Standing::moving(
                Phase::Planning,
                "listing the main prefix against the output",
            ));
            None
        }
        PlanFacts::Going { listed } => {
            let message =
                format!("listing the main prefix against the output: {listed} shards so far");
            draft.stand(Standing::moving(Phase::Planning, message));
            None
        }
        PlanFacts::Refused { .. } => None,
        PlanFacts::Made(totals) => {
            let is_known = draft.was_true(types::PLANNED);
            planned(draft, totals, is_known);
            is_known.then(|| totals.clone())
        }
    }
}

fn planned(draft: &mut Draft<'_>, totals: &PlanTotals, is_known: bool) {
    let message = format!(
        "{} shards: {} to make, {} in place",
        totals.shards, totals.todo, totals.kept
    );
    draft
        .conditions
        .set(types::PLANNED, Status::True, reasons::PLANNED, &message);
    if is_known {
        return;
    }
    // Whether there is a canary is settled here, and in the API server before anything starts.
    let has_canary = draft.object.spec.canary.shards > 0 && totals.todo > 0;
    draft.status.canary = has_canary.then(|| CanaryStatus {
        terms: Some(canary::asked(&draft.object.spec.canary)),
        ..CanaryStatus::default()
    });
    // The release that has made the plan does the work, whatever is installed meanwhile.
    let image = draft.default_image();
    if let Some(run) = &mut draft.status.run {
        run.image = image;
    }
    let phase = match (has_canary, totals.todo) {
        (_, 0) => Phase::Verifying,
        (true, _) => Phase::Canary,
        (false, _) => Phase::Running,
    };
    draft.requeue = AT_ONCE;
    draft.stand(Standing::moving(phase, format!("planned {message}")));
}
