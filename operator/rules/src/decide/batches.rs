//! What is started, settled, retried and deleted: the Jobs of a run.

use crds::RunStatus;
use k8s_openapi::jiff::Timestamp;

use super::attempts::{self, Batch, State, Terms};
use super::canary::{self, Stage};
use super::draft::Draft;
use super::scale::{self, Allotment};
use super::standing::{Phase, Standing};
use super::{numbers, queue, seal, stray};
use crate::model::{Action, Item, JobSpec, ObservedJob, PlanTotals, RunFacts, SealFacts};
use crate::{build, items, names};
use kube::ResourceExt;

/// Seconds in which a Job that lacks pods is looked at again: nothing may happen meanwhile.
const PODS_WITHIN: i64 = 10;

/// What the steps share.
pub(super) struct Context<'a> {
    pub(super) run: &'a RunStatus,
    pub(super) facts: &'a RunFacts,
    pub(super) totals: &'a PlanTotals,
    pub(super) epoch: u64,
    /// The batches so far, in order.
    pub(super) book: &'a [Batch<'a>],
    /// Shards that no batch has yet.
    pub(super) unassigned: u64,
}

impl Context<'_> {
    /// Items of the batches so far that haven't ended.
    pub(super) fn left(&self) -> u64 {
        self.book.iter().map(|batch| u64::from(batch.left())).sum()
    }

    /// Whether every shard was handed out, and nothing is left to do about it.
    pub(super) fn is_done(&self) -> bool {
        self.unassigned == 0 && self.book.iter().all(|batch| batch.state.is_closed())
    }
}

pub(super) fn decide(
    draft: &mut Draft<'_>,
    run: &RunStatus,
    facts: &RunFacts,
    totals: &PlanTotals,
    epoch: u64,
) {
    let observed = draft.observed;
    let jobs: Vec<&ObservedJob> = observed
        .jobs
        .iter()
        .filter(|job| job.run == run.name)
        .collect();
    let terms = Terms {
        epoch,
        retries: u32::try_from(draft.object.spec.failure_policy.retries_per_chunk).unwrap_or(0),
    };
    let book: Vec<Batch<'_>> = facts
        .batches
        .iter()
        .filter_map(|batch| {
            attempts::assess(batch, &jobs, terms, |number, attempt| {
                numbers::was_taken(&draft.before, number, attempt)
            })
        })
        .collect();
    let handed: u64 = book.iter().map(|batch| items::total(batch.items)).sum();
    let context = Context {
        run,
        facts,
        totals,
        epoch,
        book: &book,
        unassigned: totals.todo.saturating_sub(handed),
    };
    tidy(draft, &context, &jobs);
    settle(draft, &context);
    if draft.is_suspended() {
        scale::report(draft, 0);
    } else {
        advance(draft, &context);
    }
    numbers::update(draft, &context);
}

/// A Job that is no longer of use goes: of a batch that is closed, of an earlier attempt, or of
/// nothing that is known.
fn tidy(draft: &mut Draft<'_>, context: &Context<'_>, jobs: &[&ObservedJob]) {
    for job in jobs {
        let batch = context.book.iter().find(|batch| batch.number == job.batch);
        let is_of_use = batch
            .is_some_and(|batch| batch.last.attempt == job.attempt && !batch.state.is_closed());
        if !is_of_use {
            draft.delete(job);
        }
    }
}

fn settle(draft: &mut Draft<'_>, context: &Context<'_>) {
    for batch in context.book {
        if batch.state == State::Over {
            draft.actions.push(Action::Settle {
                batch: batch.number,
                attempt: batch.last.attempt,
                death: draft.observed.pods.died.clone(),
            });
        }
    }
}

fn advance(draft: &mut Draft<'_>, context: &Context<'_>) {
    let stage = canary::stage(draft, context);
    match stage {
        Stage::Rejected => return,
        Stage::Paused | Stage::Judged => return scale::report(draft, 0),
        Stage::Going | Stage::None => {}
    }
    let workers = match stage {
        Stage::Going => scale::most(draft),
        _ => scale::workers(draft, context),
    };
    let mut allotment = Allotment::new(workers);
    for batch in context.book {
        go_on(draft, context, batch, &mut allotment);
    }
    match stage {
        Stage::Going => {
            if context.book.is_empty() {
                let items = canary::items(draft, context.totals);
                start_batch(draft, context, 0, items, &mut allotment);
            }
            let message =
                "the canary measures speed, matches and nulls over a spread of the shards";
            let message = with_obstacles(draft, context, message.to_owned());
            draft.stand(Standing::moving(Phase::Canary, message));
        }
        _ if context.is_done() => seal::decide(draft, context, &mut allotment),
        _ => {
            next_batch(draft, context, &mut allotment);
            let message = format!("working on {} shards", context.totals.todo);
            let message = with_obstacles(draft, context, message);
            draft.stand(Standing::moving(Phase::Running, message));
        }
    }
    if !draft.has_ended() {
        scale::report(draft, allotment.used());
    }
}

/// What goes on, and what is in its way.
fn with_obstacles(draft: &mut Draft<'_>, context: &Context<'_>, message: String) -> String {
    if context.book.iter().any(Batch::lacks_pods) {
        draft.look_again_in(PODS_WITHIN);
    }
    let mut message = queue::with_waiting(draft, context, message);
    if let Some(words) = stray::end(draft) {
        message = format!("{message}; {words}");
    }
    if let Some((_, words)) = numbers::obstacle(draft) {
        message = format!("{message}; workers can't start: {words}");
    }
    if let Some(words) = &draft.observed.pods.died {
        message = format!("{message}; workers die and are tried again: {words}");
    }
    with_pauses(draft, context, message)
}

/// When a batch is tried again that waits for its time.
fn with_pauses(draft: &Draft<'_>, context: &Context<'_>, message: String) -> String {
    let batches = context.book.iter();
    let paused = batches.filter_map(|batch| Some((batch.paused_until(draft.now)?, batch)));
    let next = paused.min_by_key(|(at, _)| *at);
    match next.and_then(|(at, batch)| Some((Timestamp::from_second(at).ok()?, batch))) {
        None => message,
        Some((at, batch)) => {
            let reason = batch
                .last
                .settled
                .as_ref()
                .and_then(|of| of.reason.as_deref());
            let reason = reason.unwrap_or("its workers died");
            let number = batch.number;
            format!("{message}; what batch {number} has lost ({reason}) is tried again at {at}")
        }
    }
}

/// The next step of one batch.
fn go_on(
    draft: &mut Draft<'_>,
    context: &Context<'_>,
    batch: &Batch<'_>,
    allotment: &mut Allotment,
) {
    if let Some(at) = batch.paused_until(draft.now) {
        return draft.look_again_in(at - draft.now.as_second());
    }
    match &batch.state {
        State::Live(job) if is_obsolete(draft, context, job) => {
            draft.delete(job);
            allotment.going(job);
        }
        State::Live(job) => allotment.live(draft, job, batch.left()),
        State::Ending(job) => allotment.going(job),
        State::Unstarted => {
            let again = Attempt {
                batch: batch.number,
                attempt: batch.last.attempt,
                items: batch.last.items.clone(),
                tries: batch
                    .last
                    .tries
                    .unwrap_or(batch.last.attempt.saturating_sub(1)),
            };
            start(draft, context, again, allotment);
        }
        State::Lost { items, tries, .. } => {
            let further = Attempt {
                batch: batch.number,
                attempt: batch.last.attempt.saturating_add(1),
                items: items.to_vec(),
                tries: *tries,
            };
            start(draft, context, further, allotment);
        }
        State::Over | State::Finished | State::GivenUp { .. } => {}
    }
}

/// Whether a Job is in another queue than the spec's; or whether its pods are none, can't start or
/// die, and those of a Job built from the spec as it is now may not: a Job's own template can't be
/// changed, and it would go on to the end of its tries. Another Job takes its place, and that costs
/// its items no try.
pub(super) fn is_obsolete(draft: &Draft<'_>, context: &Context<'_>, job: &ObservedJob) -> bool {
    if job.queue != draft.object.spec.queue {
        return true;
    }
    let pods = &draft.observed.pods;
    let can_not_start = pods.unschedulable.is_some() || pods.cannot_start.is_some();
    let is_blocked = can_not_start && job.active > 0 && job.ready == 0;
    if job.has_had_pods && !is_blocked && pods.died.is_none() {
        return false;
    }
    let spec = job_spec(draft, context, job.batch, job.attempt);
    let current = build::template_digest(draft.object, &spec, &draft.observed.settings);
    job.template.as_ref().is_some_and(|built| *built != current)
}

/// Hands out more of the plan before the workers run out of it. Of items that are much larger than
/// any before there is first one for each worker; what those are found to cost, soon after they
/// have begun, decides about all others.
fn next_batch(draft: &mut Draft<'_>, context: &Context<'_>, allotment: &mut Allotment) {
    let (left, workers) = (context.left(), allotment.total());
    let is_short = left < 2 * u64::from(workers);
    if context.unassigned == 0 || !is_short || allotment.left() == 0 {
        return;
    }
    let handed = context
        .book
        .iter()
        .flat_map(|batch| batch.items.iter().copied());
    let gaps = items::complement(context.totals.todo, handed);
    let sizes = scale::item_sizes(draft, context, workers);
    let mut cut = items::cut(&gaps, sizes.wanted, sizes.least, scale::most_items(draft));
    let costs = &context.facts.progress.costs;
    if !costs.foresees(items::largest(&cut)) {
        if context.book.iter().any(|batch| batch.is_trial(costs)) {
            return;
        }
        cut.truncate(workers as usize);
    }
    if let Some(sizing) = &mut draft.status.sizing {
        sizing.shards_per_chunk = i64::try_from(sizes.wanted).ok();
    }
    let number = context.book.last().map_or(0, |batch| batch.number + 1);
    start_batch(draft, context, number, cut, allotment);
}

fn start_batch(
    draft: &mut Draft<'_>,
    context: &Context<'_>,
    batch: u32,
    items: Vec<Item>,
    allotment: &mut Allotment,
) {
    let first = Attempt {
        batch,
        attempt: 1,
        items,
        tries: 0,
    };
    start(draft, context, first, allotment);
}

/// An attempt that is to be started.
pub(super) struct Attempt {
    pub(super) batch: u32,
    pub(super) attempt: u32,
    pub(super) items: Vec<Item>,
    pub(super) tries: u32,
}

/// Starts an attempt, unless all workers are with others: then later.
pub(super) fn start(
    draft: &mut Draft<'_>,
    context: &Context<'_>,
    attempt: Attempt,
    allotment: &mut Allotment,
) {
    let Attempt {
        batch,
        attempt,
        items,
        tries,
    } = attempt;
    let completions = items.len() as u32;
    let parallelism = allotment.take(completions);
    if parallelism == 0 {
        return;
    }
    let spec = JobSpec {
        completions,
        parallelism,
        suspend: draft.object.spec.queue.is_some(),
        ..job_spec(draft, context, batch, attempt)
    };
    let job = build::job(draft.object, &spec, &draft.observed.settings);
    draft.actions.push(Action::Start {
        batch,
        attempt,
        items,
        epoch: context.epoch,
        tries,
        job: Box::new(job),
        after: (attempt > 1).then(|| job_name(draft, &context.run.name, batch, attempt - 1)),
    });
}

/// What the Job of an attempt is built from, but for its size.
fn job_spec(draft: &Draft<'_>, context: &Context<'_>, batch: u32, attempt: u32) -> JobSpec {
    let pinned = context.run.image.clone();
    JobSpec {
        name: job_name(draft, &context.run.name, batch, attempt),
        run: context.run.name.clone(),
        batch,
        attempt,
        epoch: context.epoch,
        completions: 0,
        parallelism: 0,
        suspend: false,
        prefix: draft.before.output.clone().unwrap_or_default(),
        has_identity: draft.observed.has_identity,
        digest: context.run.pipeline_digest.clone().unwrap_or_default(),
        image: pinned.unwrap_or_else(|| draft.observed.settings.worker_image.clone()),
    }
}

/// Name of the Job of an attempt.
pub(super) fn job_name(draft: &Draft<'_>, run: &str, batch: u32, attempt: u32) -> String {
    let uid = draft.object.metadata.uid.as_deref().unwrap_or_default();
    names::job_name(&draft.object.name_any(), uid, run, batch, attempt)
}

/// Starts the items again that the output doesn't hold although their workers said so; `false` if
/// that was tried often enough.
pub(super) fn redo(
    draft: &mut Draft<'_>,
    context: &Context<'_>,
    allotment: &mut Allotment,
) -> bool {
    let SealFacts::Missing { items: missing, .. } = &context.facts.seal else {
        return true;
    };
    let retries = u32::try_from(draft.object.spec.failure_policy.retries_per_chunk).unwrap_or(0);
    let is_missing = |item: &Item| {
        missing
            .iter()
            .any(|gone| gone.0 < item.1 && item.0 < gone.1)
    };
    for batch in context.book {
        let items: Vec<Item> = batch.items.iter().copied().filter(is_missing).collect();
        if items.is_empty() {
            continue;
        }
        let before = batch
            .last
            .tries
            .unwrap_or(batch.last.attempt.saturating_sub(1));
        if before >= retries.max(1) {
            return false;
        }
        let again = Attempt {
            batch: batch.number,
            attempt: batch.last.attempt.saturating_add(1),
            items,
            tries: before.saturating_add(1),
        };
        start(draft, context, again, allotment);
    }
    true
}
