//! The canary: a small run over a spread of the shards, before the large spend.

use crds::{Canary, CanaryTerms};

use super::attempts::State;
use super::batches::Context;
use super::draft::{AT_ONCE, Draft, RESTING};
use super::seal;
use super::standing::{Course, Phase, Standing};
use crate::conditions::Status;
use crate::items;
use crate::model::{Item, PlanTotals, ProgressFacts, frozen};
use crate::reasons::{self, types};
use crate::sizing::MOST_ITEMS_OF_A_JOB;

/// How far the canary is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// There is none, or it has passed: nothing holds the rest back.
    None,
    /// It goes on, or is to begin.
    Going,
    /// It was judged just now; the rest waits until the API server knows.
    Judged,
    /// It passed, and a person wants to look at the numbers.
    Paused,
    /// It was judged badly.
    Rejected,
}

/// The items of the canary: batch 0.
pub(super) fn items(draft: &Draft<'_>, totals: &PlanTotals) -> Vec<Item> {
    let shards = u64::try_from(terms(draft).shards).unwrap_or(0).max(1);
    let workers = u64::try_from(draft.object.spec.throughput.max_workers).unwrap_or(1);
    let most = draft
        .observed
        .settings
        .items_per_job
        .clamp(1, MOST_ITEMS_OF_A_JOB);
    items::spread(totals.todo, shards, workers.clamp(1, u64::from(most)))
}

/// What was asked of the canary when the run was planned.
fn terms(draft: &Draft<'_>) -> CanaryTerms {
    let planned = draft.before.canary.as_ref();
    let planned = planned.and_then(|canary| canary.terms.clone());
    planned.unwrap_or_else(|| asked(&draft.object.spec.canary))
}

/// What a spec asks of its canary.
pub(super) fn asked(canary: &Canary) -> CanaryTerms {
    CanaryTerms {
        shards: canary.shards,
        min_match_rate: canary.min_match_rate,
        max_null_rate: canary.max_null_rate,
    }
}

pub(super) fn stage(draft: &mut Draft<'_>, context: &Context<'_>) -> Stage {
    let Some(canary) = &draft.before.canary else {
        return Stage::None;
    };
    match canary.passed {
        Some(true) => {
            let is_the_rest_to_come = context.unassigned > 0 && context.book.len() <= 1;
            if draft.object.spec.canary.pause && is_the_rest_to_come {
                pause(draft);
                return Stage::Paused;
            }
            Stage::None
        }
        Some(false) => Stage::Rejected,
        None => {
            let is_over = context
                .book
                .first()
                .is_some_and(|first| first.state.is_closed());
            if is_over {
                judge(draft, context)
            } else {
                Stage::Going
            }
        }
    }
}

fn pause(draft: &mut Draft<'_>) {
    draft.requeue = RESTING;
    let message = format!(
        "the canary passed ({}); set spec.canary.pause to false to go on",
        draft
            .conditions
            .get(types::CANARY_PASSED)
            .map(|condition| condition.message.clone())
            .unwrap_or_default()
    );
    draft.stand(Standing::new(
        Phase::Canary,
        Course::Resting,
        reasons::PAUSED_AFTER_CANARY,
        message,
    ));
}

/// Shares of rows, from 0 to 1; absent if no row was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    matched: Option<f64>,
    null: Option<f64>,
}

fn rates(progress: &ProgressFacts, has_lookups: bool) -> Rates {
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    Rates {
        matched: share(progress.matched, progress.rows).filter(|_| has_lookups),
        null: progress
            .nulls
            .values()
            .filter_map(|(null, rows)| share(*null, *rows))
            .reduce(f64::max),
    }
}

fn judge(draft: &mut Draft<'_>, context: &Context<'_>) -> Stage {
    let progress = &context.facts.progress;
    let rates = rates(progress, frozen::looks_up(draft.object));
    let cost = progress.costs.of_a_shard();
    let objection = objection(draft, context, rates);
    let message = match &objection {
        None => summary(progress, rates),
        Some(objection) => format!("{objection} ({})", summary(progress, rates)),
    };
    let has_passed = objection.is_none();
    if let Some(canary) = &mut draft.status.canary {
        canary.shards = i32::try_from(progress.done).unwrap_or(i32::MAX);
        canary.shards_per_second_per_worker = cost.speed(1).map(|speed| rounded(speed, 1e4));
        canary.match_rate = rates.matched.map(|rate| rounded(rate, 1e6));
        canary.null_rate = rates.null.map(|rate| rounded(rate, 1e6));
        canary.passed = Some(has_passed);
    }
    if has_passed {
        let reason = reasons::CANARY_PASSED;
        draft
            .conditions
            .set(types::CANARY_PASSED, Status::True, reason, &message);
        draft.requeue = AT_ONCE;
        draft.stand(Standing::moving(
            Phase::Canary,
            format!("the canary passed: {message}"),
        ));
        Stage::Judged
    } else {
        let reason = reasons::CANARY_REJECTED;
        draft
            .conditions
            .set(types::CANARY_PASSED, Status::False, reason, &message);
        let way_out = "correct the pipeline or its inputs, or change spec.canary and ask for \
                       another run";
        seal::fail(draft, reason, format!("canary: {message}; {way_out}"));
        Stage::Rejected
    }
}

/// Why the canary isn't good enough.
fn objection(draft: &Draft<'_>, context: &Context<'_>, rates: Rates) -> Option<String> {
    let terms = terms(draft);
    let first = context.book.first();
    if let Some(given_up) = first.map(|first| first.given_up)
        && given_up.is_permanent
    {
        let reason = given_up.reason.as_deref().unwrap_or("no reason was given");
        return Some(format!("the work can't be done: {reason}"));
    }
    if context.facts.progress.done == 0 {
        let failures = &context.facts.progress.failures;
        let lost = first.and_then(|first| match first.state {
            State::GivenUp { reason, .. } => reason,
            _ => None,
        });
        let first = failures.first().map_or_else(
            || lost.unwrap_or("their workers died").to_owned(),
            |failure| format!("{}: {}", failure.path, failure.reason),
        );
        return Some(format!("every shard failed, the first: {first}"));
    }
    let percent = |rate: f64| format!("{:.2}%", 100.0 * rate);
    if let (Some(least), Some(rate)) = (terms.min_match_rate, rates.matched)
        && rate < least
    {
        return Some(format!(
            "only {} of the rows matched, spec.canary.minMatchRate asks for {}",
            percent(rate),
            percent(least)
        ));
    }
    if let (Some(most), Some(rate)) = (terms.max_null_rate, rates.null)
        && rate > most
    {
        return Some(format!(
            "{} of the rows have no value in some column, spec.canary.maxNullRate accepts {}",
            percent(rate),
            percent(most)
        ));
    }
    None
}

fn summary(progress: &ProgressFacts, rates: Rates) -> String {
    let share = |rate: Option<f64>| {
        rate.map_or_else(|| "none".to_owned(), |rate| format!("{:.2}%", 100.0 * rate))
    };
    let mut summary = format!(
        "{} shards done, {} failed; {} rows, matched {}, null at most {}",
        progress.done,
        progress.failed,
        progress.rows,
        share(rates.matched),
        share(rates.null)
    );
    for warning in &progress.warnings {
        summary.push_str("; warning: ");
        summary.push_str(warning);
    }
    summary
}

fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}
