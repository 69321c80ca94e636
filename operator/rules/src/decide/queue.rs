//! Jobs that wait until somebody else lets them start: a queue, most of the time.

use super::attempts::{Batch, State};
use super::batches::Context;
use super::draft::Draft;
use super::numbers;
use crate::conditions::Status;
use crate::model::ObservedJob;
use crate::reasons::{self, types};

/// Whether a Job, which is suspended, is this operator's to resume.
pub(super) fn is_ours(draft: &Draft<'_>, job: &ObservedJob) -> bool {
    // Of Jobs that an earlier version suspended only the status knows.
    let was_suspended = || numbers::was_suspended(&draft.before, job.batch, job.attempt);
    job.queue.is_none() && (job.is_suspended_by_us || was_suspended())
}

/// The Jobs that others hold back.
fn waiting<'a>(
    draft: &'a Draft<'_>,
    context: &'a Context<'_>,
) -> impl Iterator<Item = &'a ObservedJob> {
    let live = context.book.iter().filter_map(live);
    live.filter(|job| job.is_suspended && !is_ours(draft, job))
}

fn live<'a>(batch: &Batch<'a>) -> Option<&'a ObservedJob> {
    match batch.state {
        State::Live(job) => Some(job),
        _ => None,
    }
}

/// Why Jobs wait, and a word for it; `None` if none does.
fn why(draft: &Draft<'_>, context: &Context<'_>) -> Option<(&'static str, String)> {
    if draft.is_suspended() {
        return None;
    }
    let first = waiting(draft, context).next()?;
    let name = &first.name;
    Some(match &first.queue {
        None => (
            reasons::SUSPENDED_BY_ANOTHER,
            format!(
                "something else than this operator has suspended the Job {name}: a queue that \
                 wants spec.queue to be set, or a person, who has to resume it"
            ),
        ),
        Some(queue) => {
            let words = draft.observed.asked.queued.as_deref();
            let words = words.unwrap_or("it has not said why");
            (
                reasons::WAITING_FOR_QUEUE,
                format!("the queue {queue} has not let the Job {name} in: {words}"),
            )
        }
    })
}

/// The condition about it.
pub(super) fn set_condition(draft: &mut Draft<'_>, context: &Context<'_>) {
    let kind = types::QUEUED;
    if let Some((reason, message)) = why(draft, context) {
        draft.conditions.set(kind, Status::True, reason, &message);
    } else if draft.conditions.get(kind).is_some() {
        let message = "no Job waits to be let in";
        draft
            .conditions
            .set(kind, Status::False, reasons::ADMITTED, message);
    }
}

/// What goes on, and that Jobs wait.
pub(super) fn with_waiting(draft: &Draft<'_>, context: &Context<'_>, message: String) -> String {
    match why(draft, context) {
        None => message,
        Some((_, words)) => format!("{message}; {words}"),
    }
}

/// The workers that queues have let in, if every Job that lives has gone through one: they set
/// aside no more than that, whatever was asked for.
pub(super) fn admitted(context: &Context<'_>) -> Option<u32> {
    let mut jobs = context.book.iter().filter_map(live).peekable();
    jobs.peek()?;
    jobs.try_fold(0_u32, |sum, job| {
        let is_admitted = job.queue.is_some() && !job.is_suspended;
        is_admitted.then(|| sum.saturating_add(job.parallelism))
    })
}
