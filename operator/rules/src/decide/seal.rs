//! The end of a run.

use crds::{RateStatus, ShardCounts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::attempts::Batch;
use super::batches::{self, Context};
use super::draft::{AT_ONCE, Draft};
use super::numbers;
use super::scale::{self, Allotment};
use super::standing::{Course, Phase, Standing};
use crate::conditions::seconds;
use crate::model::{Action, SealFacts, SealTotals};
use crate::reasons::{self, types};

/// Conditions that say nothing of a run that has ended: nobody waits, and the lock is given up.
pub(super) const WHILE_IT_GOES_ON: [&str; 3] = [
    types::OUTPUT_LOCKED,
    types::WORKERS_UNSCHEDULABLE,
    types::QUEUED,
];

/// Every item has ended: the output is held against the plan, and sealed.
pub(super) fn decide(draft: &mut Draft<'_>, context: &Context<'_>, allotment: &mut Allotment) {
    match &context.facts.seal {
        SealFacts::None => {
            let batches = context.book.iter();
            let given_up = batches.flat_map(Batch::failed_items).collect();
            draft.actions.push(Action::Seal { given_up });
            draft.stand(Standing::moving(
                Phase::Verifying,
                "listing the output against the plan",
            ));
        }
        SealFacts::Going { checked } => draft.stand(Standing::moving(
            Phase::Verifying,
            format!("listing the output against the plan: {checked} shards so far"),
        )),
        SealFacts::Missing { message, .. } => {
            if batches::redo(draft, context, allotment) {
                draft.stand(Standing::new(
                    Phase::Running,
                    Course::Moving,
                    reasons::SHARDS_MISSING,
                    format!("{message}; they are made again"),
                ));
            } else {
                let message = format!("{message}; they were made again and went again");
                fail(draft, reasons::OUTPUT_INCOMPLETE, message);
            }
        }
        SealFacts::Sealed(totals) => sealed(draft, context, totals),
    }
}

fn sealed(draft: &mut Draft<'_>, context: &Context<'_>, totals: &SealTotals) {
    let total = context.totals.shards;
    let failed = totals.failed.max(total.saturating_sub(totals.shards));
    draft.status.shards = Some(ShardCounts {
        total: numbers::int(total),
        done: numbers::int(totals.shards),
        kept: numbers::int(context.totals.kept),
        failed: numbers::int(failed),
        progress: Some(format!("{}/{total}", totals.shards)),
    });
    draft.status.rows = Some(numbers::rows(draft, totals.rows, totals.matched));
    draft.status.failures = numbers::failures(&totals.failures);
    draft
        .status
        .failure_report
        .clone_from(&totals.failure_report);
    draft.status.rates = Some(average(draft, context, totals));
    let accepted = u64::try_from(draft.object.spec.failure_policy.max_failed_shards).unwrap_or(0);
    let done = format!("{} of {total} shards are in the output", totals.shards);
    if failed > accepted {
        let message = format!(
            "{failed} shards failed, spec.failurePolicy.maxFailedShards accepts {accepted}; \
             {done}; status.failures has the first, status.failureReport names all of them"
        );
        return fail(draft, reasons::TOO_MANY_FAILED_SHARDS, message);
    }
    let (reason, message) = if failed == 0 {
        (reasons::COMPLETED, done)
    } else {
        (
            reasons::COMPLETED_WITH_FAILURES,
            format!("{done}; {failed} failed, which spec.failurePolicy accepts"),
        )
    };
    end(
        draft,
        Standing::new(Phase::Succeeded, Course::Complete, reason, message),
    );
}

/// Over the whole run: what the last window says means nothing any more.
fn average(draft: &Draft<'_>, context: &Context<'_>, totals: &SealTotals) -> RateStatus {
    let started = context.run.started_at.as_ref().map(|time| time.0);
    let elapsed = started
        .map_or(0, |started| draft.seconds_since(started))
        .max(1) as f64;
    let rows = totals.rows.saturating_sub(context.totals.kept_rows) as f64;
    let shards = totals.shards.saturating_sub(context.totals.kept) as f64;
    RateStatus {
        rows_per_hour: scale::rounded(rows / elapsed * 3600.0) as i64,
        shards_per_second: scale::rounded(shards / elapsed),
        estimated_end: None,
    }
}

/// Gives the run up. What is in the output stays.
pub(super) fn fail(draft: &mut Draft<'_>, reason: &str, message: String) {
    end(
        draft,
        Standing::new(Phase::Failed, Course::Failed, reason, message),
    );
}

fn end(draft: &mut Draft<'_>, standing: Standing) {
    if let Some(run) = &mut draft.status.run {
        run.finished_at = Some(Time(seconds(draft.now)));
    }
    // The background work is let go of once the API server has the end.
    draft
        .actions
        .retain(|action| !matches!(action, Action::Start { .. }));
    for kind in WHILE_IT_GOES_ON {
        draft.conditions.remove(kind);
    }
    scale::none_left(draft);
    draft.requeue = AT_ONCE;
    draft.stand(standing);
}
