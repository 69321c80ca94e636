//! A worker: what it does when its time has come, and how it ends.

use std::collections::{BTreeMap, BTreeSet};

use rules::model::Item;
use storage::state::RunId;
use storage::state::report::{ChunkReport, ChunkState, ColumnCounts};
use time::OffsetDateTime;

use crate::bucket::{Line, MATCHED, Prefix, ROWS, RunFiles};
use crate::cluster::{End, Job};
use crate::random::Random;

/// How often a worker rewrites its report.
const REPORT_EVERY_MS: i64 = 5_000;

/// What pods cost, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// From the creation of a pod until its worker runs.
    pub pod: i64,
    /// From there until its first shard can be taken.
    pub start: i64,
    /// A shard.
    pub shard: i64,
}

/// What is wrong with some shards.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// They fail for a reason of their own.
    pub poison: BTreeSet<u64>,
    /// Workers die of them, so often each.
    pub deadly: BTreeMap<u64, u32>,
    /// Workers find that they can't ever be made, nor anything else of their item.
    pub hopeless: BTreeSet<u64>,
}

/// A worker that runs.
#[derive(Clone, Debug)]
pub struct Worker {
    started_ms: i64,
    reported_ms: i64,
    item: Item,
    /// The chunks that it found to do; the others were there.
    todo: Vec<u64>,
    done: Vec<u64>,
    failed: Vec<u64>,
}

/// A worker begins, or does a shard, or ends.
pub fn work_a_step(
    job: &mut Job,
    position: usize,
    prefix: &mut Prefix,
    faults: &mut Faults,
    costs: Costs,
    random: &mut Random,
) -> Option<End> {
    let (run, batch, attempt) = (&job.seen.run, job.seen.batch, job.seen.attempt);
    let pod = &mut job.pods[position];
    let is_mine = prefix.lock.holder.as_deref() == Some(job.owner.as_str())
        && prefix.lock.run == *run
        && prefix.lock.epoch == job.seen.epoch;
    if !is_mine {
        return Some(End::Exit(4));
    }
    // Of a pod that goes on beside its successor nothing is left but what it publishes.
    let now_ms = pod.next_ms;
    pod.next_ms += random.between(costs.shard as u64 * 8 / 10, costs.shard as u64 * 12 / 10) as i64;
    let (shards, files) = (
        &mut prefix.shards,
        prefix.runs.get_mut(run).expect("the run is there"),
    );
    let name = format!("{}-{}", job.seen.name, pod.index);
    let Some(worker) = &mut pod.worker else {
        let item = files.batches[&(batch, attempt)].items[pod.index];
        let worker = Worker::begin((item.first, item.end), now_ms, costs, shards, files);
        pod.next_ms = now_ms + costs.start;
        pod.worker = Some(worker);
        return None;
    };
    let id: RunId = run.parse().expect("a name");
    let report = |worker: &Worker, state: ChunkState| {
        let began = worker.report(&id, &name, attempt, costs);
        worker.count(began, state, now_ms)
    };
    if pod.is_terminating {
        worker.record(files);
        let mut stopped = report(worker, ChunkState::Stopped);
        stopped.reason = Some("told to stop".to_owned());
        files.report(stopped);
        return Some(End::Exit(143));
    }
    let Some(chunk) = worker.next() else {
        worker.record(files);
        let done = report(worker, ChunkState::Done);
        files.report(done);
        return Some(End::Exit(i32::from(!worker.failed.is_empty())));
    };
    let shard = files.plan.as_ref().expect("planned")[chunk as usize];
    if let Some(times) = faults.deadly.get_mut(&shard)
        && *times > 0
    {
        *times = times.saturating_sub(u32::from(*times != u32::MAX));
        return Some(End::Exit(137));
    }
    if faults.hopeless.contains(&shard) {
        worker.record(files);
        let mut failed = report(worker, ChunkState::Failed);
        failed.reason = Some("the index is gone".to_owned());
        failed.is_permanent = true;
        files.report(failed);
        return Some(End::Exit(2));
    }
    // Somebody else may have had the prefix since the plan was made.
    let found = shards.entry(shard);
    let is_ours = !faults.poison.contains(&shard)
        && *found.or_insert_with(|| files.digest.clone()) == files.digest;
    if is_ours {
        worker.done.push(chunk);
    } else {
        worker.failed.push(chunk);
    }
    if now_ms - worker.reported_ms >= REPORT_EVERY_MS {
        worker.reported_ms = now_ms;
        let running = report(worker, ChunkState::Running);
        files.report(running);
    }
    None
}

impl Worker {
    fn begin(
        item: Item,
        now_ms: i64,
        costs: Costs,
        shards: &BTreeMap<u64, String>,
        files: &RunFiles,
    ) -> Self {
        let plan = files.plan.as_ref().expect("planned");
        let is_there = |chunk: &u64| shards.get(&plan[*chunk as usize]) == Some(&files.digest);
        Self {
            started_ms: now_ms + costs.start,
            reported_ms: now_ms,
            item,
            todo: (item.0..item.1).filter(|chunk| !is_there(chunk)).collect(),
            done: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn next(&self) -> Option<u64> {
        self.todo.get(self.done.len() + self.failed.len()).copied()
    }

    /// What it has found, made and failed at.
    fn record(&self, files: &mut RunFiles) {
        let found = (self.item.0..self.item.1).filter(|chunk| !self.todo.contains(chunk));
        let done = found.chain(self.done.iter().copied());
        let lines = done.map(|chunk| (chunk, Line::Done));
        files.lines.extend(lines);
        for chunk in &self.failed {
            files.lines.insert(*chunk, Line::Failed);
        }
    }

    fn report(&self, run: &RunId, name: &str, attempt: u32, costs: Costs) -> ChunkReport {
        let size = self.item.1 - self.item.0;
        let (name, began) = (name.to_owned(), time_of(self.started_ms));
        let report = ChunkReport::new(run.clone(), String::new(), 0, name, size, began);
        let mut report = report.of_item((self.item.0..self.item.1).into(), attempt);
        report.counts.seconds.start = costs.start as f64 / 1000.0;
        report
    }

    fn count(&self, mut report: ChunkReport, state: ChunkState, now_ms: i64) -> ChunkReport {
        report.state = state;
        report.updated_at = time_of(now_ms.max(self.started_ms));
        let counts = &mut report.counts;
        counts.shards_done = self.done.len() as u64;
        counts.shards_failed = self.failed.len() as u64;
        counts.shards_skipped = self.item.1 - self.item.0 - self.todo.len() as u64;
        let good = counts.shards_done + counts.shards_skipped;
        (counts.rows, counts.matched) = (good * ROWS, good * MATCHED);
        let column = ColumnCounts {
            populated: good * MATCHED,
            null: good * (ROWS - MATCHED),
            error: 0,
        };
        counts.columns = BTreeMap::from([("score".to_owned(), column)]);
        counts.seconds.shards = (now_ms - self.started_ms).max(0) as f64 / 1000.0;
        report
    }
}

pub fn time_of(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).expect("a time")
}
