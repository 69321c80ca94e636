//! Every rule of the operator: what was observed in, the new status and what to do out.
//!
//! [`decide`] has no clock, no randomness and no I/O, and it remembers nothing: each decision is
//! made anew from the object, its Jobs and pods, and what is known of the run. The phase in the
//! status is for people; no rule reads it.
//!
//! | module | rules of |
//! |---|---|
//! | `wanted` | which pipeline and prefix the spec asks for |
//! | `begin` | new runs: the first, by annotation, after a change |
//! | `follow` | a run that is going on, in order: |
//! | `lock` | … the writer lock |
//! | `planning` | … the plan |
//! | `attempts` | … what has become of each attempt at a batch |
//! | `batches` | … what is started, settled, retried and deleted |
//! | `canary` | … the small run before the large one |
//! | `scale` | … the number of workers, and who gets them |
//! | `queue` | … Jobs that somebody else has to let in |
//! | `stray` | … pods that would stand about for ever |
//! | `seal` | … the end of a run |
//! | `ended` | a run that has ended |
//! | `going` | a namespace that is being deleted |
//! | `suspend` | what `spec.suspend` stops |
//! | `numbers` | counts, rates and summaries of the status |
//! | `draft`, `standing` | a decision in the making, and its conditions by kstatus |
//! | `throttle` | live numbers are written now and then only |
//! | `announce` | events: the differences of two statuses, in words |

mod announce;
mod attempts;
mod batches;
mod begin;
mod canary;
mod draft;
mod ended;
mod follow;
mod going;
mod lock;
mod numbers;
mod planning;
mod queue;
mod scale;
mod seal;
mod standing;
mod stray;
mod suspend;
mod throttle;
mod wanted;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::model::{Action, Decision, Observed};
use draft::Draft;
pub use suspend::stop;
use wanted::Wanted;

/// Decides what to do about one SidecarJob.
pub fn decide(observed: &Observed, now: Timestamp) -> Decision {
    draw_up(observed, now, false)
}

/// The status and the events of a decision whose actions could not all be carried out: it has what
/// was found, and nothing that only those actions would make true.
pub fn report(observed: &Observed, now: Timestamp) -> Decision {
    Decision {
        actions: Vec::new(),
        ..draw_up(observed, now, true)
    }
}

fn draw_up(observed: &Observed, now: Timestamp, is_undone: bool) -> Decision {
    if observed.object.metadata.deletion_timestamp.is_some() {
        return leaving(observed);
    }
    let mut draft = Draft::new(observed, now);
    draft.is_undone = is_undone;
    if draft.is_behind() {
        return draft.finish();
    }
    draft.actions.extend(stop(observed));
    let wanted = Wanted::of(&observed.object.spec);
    let has_ended = draft.has_ended();
    let run = draft.run().cloned();
    let run = run.map(|run| begin::adopt(&mut draft, run, wanted.as_ref()));
    match run {
        _ if observed.is_namespace_going && !has_ended => going::decide(&mut draft),
        None => begin::first(&mut draft, wanted),
        Some(run) if run.finished_at.is_some() => ended::decide(&mut draft, &run, wanted),
        Some(run) => match begin::replacement(&mut draft, &run, wanted) {
            Some(replacement) => begin::replace(&mut draft, replacement),
            None => follow::decide(&mut draft, &run),
        },
    }
    draft.finish()
}

/// The object goes, and its Jobs with it, by their owner references. The output stays, and so does
/// the lock until its pods have gone.
fn leaving(observed: &Observed) -> Decision {
    let (actions, seconds) = match observed.jobs.is_empty() {
        true => (vec![Action::Release], 600),
        false => (Vec::new(), 5),
    };
    Decision {
        actions,
        requeue: Duration::from_secs(seconds),
        ..Decision::default()
    }
}
