//! The number of workers, and which Jobs get them.

use crds::{SizingStatus, WorkerCounts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::batches::Context;
use super::draft::Draft;
use super::queue;
use crate::conditions::seconds;
use crate::model::{Action, ObservedJob};
use crate::sizing::{self, DEAD_BAND, Inputs, Limit, MOST_ITEMS_OF_A_JOB, MOST_WORKERS};

/// As many as there may be.
pub(super) fn most(draft: &Draft<'_>) -> u32 {
    u32::try_from(draft.object.spec.throughput.max_workers)
        .unwrap_or(1)
        .clamp(1, MOST_WORKERS)
}

/// Most items of a Job.
pub(super) fn most_items(draft: &Draft<'_>) -> usize {
    let most = draft.observed.settings.items_per_job;
    most.clamp(1, MOST_ITEMS_OF_A_JOB) as usize
}

/// The number of workers by the formula; the status shows how it was found.
pub(super) fn workers(draft: &mut Draft<'_>, context: &Context<'_>) -> u32 {
    let progress = &context.facts.progress;
    let before = draft.before.sizing.clone().unwrap_or_default();
    let sizes = item_sizes(draft, context, 1);
    let target = draft.object.spec.throughput.target_rows_per_hour;
    let target = target.and_then(|rows| u64::try_from(rows).ok());
    let current = queue::admitted(context)
        .map(int)
        .or(before.workers)
        .and_then(|workers| u32::try_from(workers).ok())
        .filter(|workers| *workers > 0);
    let changed_at = before.changed_at.as_ref().map(|time| time.0);
    let window = draft.observed.settings.window_seconds;
    let inputs = Inputs {
        target_rows_per_hour: target,
        target_before: before
            .target_rows_per_hour
            .and_then(|rows| u64::try_from(rows).ok()),
        rows_per_shard: rows_per_shard(context),
        window_shards: progress.window_shards,
        window_seconds: progress.window_seconds,
        window_workers: progress.window_workers,
        speed: progress.costs.cost().speed(sizes.wanted),
        current,
        max_workers: most(draft),
        items_left: context.left() + context.unassigned.div_ceil(sizes.least),
        pending: draft.observed.pods.pending,
        is_settled: changed_at.is_none_or(|changed| draft.seconds_since(changed) >= window),
    };
    let sized = sizing::size(&inputs);
    // Items that end by and by need no steps: a Job starts no more pods than it has items.
    let workers = match (sized.limit, current) {
        (Some(Limit::ItemsLeft), Some(current)) => {
            sized.workers.max(current.min(inputs.max_workers))
        }
        _ => sized.workers,
    }
    .max(1);
    let is_changed = before.workers != Some(int(workers));
    draft.status.sizing = Some(SizingStatus {
        target_rows_per_hour: draft.object.spec.throughput.target_rows_per_hour,
        rows_per_shard: Some(rounded(inputs.rows_per_shard)).filter(|rows| *rows > 0.0),
        target_shards_per_second: sized.target_shards_per_second.map(rounded),
        observed_shards_per_second: sized.observed_shards_per_second.map(rounded),
        observed_workers: sized.observed_workers.map(rounded),
        wanted_workers: sized.wanted.map(int),
        workers: Some(int(workers)),
        limited_by: sized.limit.map(|limit| limit.word().to_owned()),
        shards_per_chunk: before.shards_per_chunk,
        changed_at: if is_changed {
            Some(Time(seconds(draft.now)))
        } else {
            before.changed_at
        },
    });
    workers
}

/// How large the items of the next batch are to be.
pub(super) struct ItemSizes {
    /// Shards of an item.
    pub(super) wanted: u64,
    /// Shards of the smallest that makes up for its fixed cost.
    pub(super) least: u64,
}

pub(super) fn item_sizes(draft: &Draft<'_>, context: &Context<'_>, workers: u32) -> ItemSizes {
    let seconds = draft.observed.settings.item_seconds;
    let costs = &context.facts.progress.costs;
    let cost = costs.cost();
    let wanted = sizing::shards_per_item(cost, seconds, context.unassigned, workers);
    ItemSizes {
        wanted,
        least: sizing::least_shards_per_item(cost),
    }
}

/// From main's footers; if none could be read, from what was written so far.
fn rows_per_shard(context: &Context<'_>) -> f64 {
    let (planned, progress) = (context.totals.rows_per_shard, &context.facts.progress);
    if planned.is_finite() && planned > 0.0 {
        planned
    } else if progress.done > 0 {
        progress.rows as f64 / progress.done as f64
    } else {
        0.0
    }
}

/// Workers that are handed out to Jobs, in the order of their batches.
pub(super) struct Allotment {
    total: u32,
    used: u32,
    is_first: bool,
}

impl Allotment {
    pub(super) fn new(total: u32) -> Self {
        Self {
            total,
            used: 0,
            is_first: true,
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn left(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }

    /// Workers for a new Job with so many items.
    pub(super) fn take(&mut self, items: u32) -> u32 {
        let taken = self.left().min(items);
        self.used += taken;
        self.is_first = false;
        taken
    }

    /// A Job that goes: its pods are still there.
    pub(super) fn going(&mut self, job: &ObservedJob) {
        self.used = self.used.saturating_add(job.active);
    }

    /// A live Job with so many items left. Of a Job only `parallelism` changes; in a queue not
    /// even that, since the queue has set the room aside.
    pub(super) fn live(&mut self, draft: &mut Draft<'_>, job: &ObservedJob, left: u32) {
        let room = self.left();
        let wanted = room.min(left);
        let band = ((DEAD_BAND * f64::from(self.total)) as u32).max(1);
        let is_over = job.parallelism > room && left > room;
        let is_under = wanted > job.parallelism
            && (self.is_first || job.parallelism == 0 || wanted - job.parallelism >= band);
        let mut parallelism = job.parallelism;
        if job.queue.is_some() {
            // As the queue has it.
        } else if job.is_suspended && !queue::is_ours(draft, job) {
            // Somebody else's to resume.
        } else if job.is_suspended {
            draft.actions.push(Action::Suspend {
                name: job.name.clone(),
                resource_version: job.resource_version.clone(),
                suspend: false,
            });
        } else if is_over || is_under {
            parallelism = wanted;
            draft.actions.push(Action::Scale {
                name: job.name.clone(),
                resource_version: job.resource_version.clone(),
                parallelism,
            });
        }
        self.used = self.used.saturating_add(parallelism.min(left));
        self.is_first = false;
    }
}

/// The workers of the status: how many are asked for, and what the pods are at.
pub(super) fn report(draft: &mut Draft<'_>, desired: u32) {
    let pods = &draft.observed.pods;
    draft.status.workers = Some(WorkerCounts {
        desired: int(desired),
        ready: int(pods.ready),
        pending: int(pods.pending),
        summary: Some(format!("{}/{desired}", pods.ready)),
    });
}

/// The workers of a run that has ended: those that are still there are on their way out.
pub(super) fn none_left(draft: &mut Draft<'_>) {
    draft.status.workers = Some(WorkerCounts {
        summary: Some("0/0".to_owned()),
        ..WorkerCounts::default()
    });
}

fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Four digits: more would only be noise.
pub(super) fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    let scale = 10_f64.powi(digits);
    let rounded = (number * scale).round() / scale;
    if rounded.is_finite() { rounded } else { 0.0 }
}
