//! What is known of each item of a run, from its latest report, and the sums over them. Pure.
//!
//! An item costs a few hundred bytes, so that 20,000 of them (ten million shards) are a few
//! megabytes. Public, so that a simulated world can keep the same one.

mod reported;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use storage::ETag;
use storage::state::batch::Batch;
use storage::state::report::{ChunkReport, ChunkState, Counts};
use time::OffsetDateTime;

use reported::Reported;
pub(super) use reported::milliseconds;
use rules::model::{
    AttemptFacts, BatchFacts, FailureNote, GivenUpItems, Item, ProgressFacts, Settled,
};

use super::bounds::NAMES;
use super::window::{Sample, Window};

/// Failures that facts name.
const FAILURES: usize = 10;
/// Bytes of a failure's reason, at most; all of it is in the lines.
const REASON_BYTES: usize = 500;
/// What is said of an item whose worker said nothing.
pub(super) const NO_REASON: &str = "its workers died";

/// The items of a run and what is known of them.
#[derive(Debug)]
pub struct Book {
    batches: BTreeMap<u32, BTreeMap<u32, AttemptState>>,
    /// By first chunk, which names an item.
    items: BTreeMap<u64, ItemState>,
    /// Names of columns; an item's counts refer to them by position.
    columns: Vec<String>,
    /// Reasons of faults of rows that were met so far.
    reasons: Vec<String>,
    /// What workers say that people should know of the side inputs.
    warnings: BTreeSet<String>,
    /// Failed shards by path, with the item that each is of.
    failures: BTreeMap<String, (u64, String)>,
    last_progress_ms: Option<i64>,
    window: Window,
    sample: Sample,
    /// Shards of the largest item that was handed out last.
    item_shards: u64,
}

#[derive(Debug, Default)]
struct AttemptState {
    items: Vec<Item>,
    epoch: u64,
    tries: Option<u32>,
    is_being_settled: bool,
    settled: Option<Settled>,
}

#[derive(Debug, Default)]
struct ItemState {
    end: u64,
    /// The latest attempt that has the item.
    attempt: u32,
    /// Version of the report that was read last.
    etag: Option<ETag>,
    /// What that report says; `None` before there is one that can be read.
    report: Option<Reported>,
    /// The numbers of the report that was furthest: a further attempt begins with zeros, and
    /// progress never goes back.
    best: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    done: u64,
    failed: u64,
    /// Shards that its worker made or failed at, without those it found.
    worked: u64,
    rows: u64,
    matched: u64,
    fixed_seconds: f64,
    shard_seconds: f64,
    /// Shards that its worker found in place.
    kept: u64,
    /// By position of the column: rows without a value, and rows.
    nulls: Box<[(u32, u64, u64)]>,
    /// By position of the reason: rows.
    row_errors: Box<[(u32, u64)]>,
}

impl ItemState {
    /// Whether nothing is left to do about it, in the latest attempt.
    fn is_ended(&self) -> bool {
        self.is_ended_for(self.attempt)
    }

    /// Whether every shard is done or has failed for a reason of its own, or its worker can't ever
    /// do it.
    fn is_ended_for(&self, attempt: u32) -> bool {
        self.report.as_ref().is_some_and(|report| {
            let is_whole = report.state == ChunkState::Done && report.is_whole;
            (is_whole || report.is_hopeless()) && report.attempt >= attempt
        })
    }

    /// Whether its latest worker can't ever do it.
    fn is_hopeless(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.is_hopeless() && report.attempt >= self.attempt)
    }

    /// Why the latest attempt did not end it, in the words of its worker.
    fn reason(&self) -> Option<&str> {
        let report = self.report.as_ref();
        let report = report.filter(|report| report.attempt >= self.attempt);
        report?.reason.as_deref()
    }

    /// Shards of it that are neither done nor failed for a reason of their own.
    fn open_shards(&self, first: u64) -> u64 {
        (self.end - first).saturating_sub(self.best.done + self.best.failed)
    }
}

impl Book {
    /// An empty one, which measures speed over `window`.
    pub fn new(window: Duration) -> Self {
        Self {
            batches: BTreeMap::new(),
            items: BTreeMap::new(),
            columns: Vec::new(),
            reasons: Vec::new(),
            warnings: BTreeSet::new(),
            failures: BTreeMap::new(),
            last_progress_ms: None,
            window: Window::new(window),
            item_shards: 0,
            sample: Sample::default(),
        }
    }

    /// Takes in the file of an attempt.
    pub fn add_batch(&mut self, file: &Batch) {
        let Ok(number) = u32::try_from(file.batch) else {
            return;
        };
        let items: Vec<Item> = file
            .items
            .iter()
            .map(|item| (item.first, item.end))
            .collect();
        self.item_shards = (items.iter().map(|(first, end)| end - first))
            .max()
            .unwrap_or_default();
        for (first, end) in &items {
            let item = self.items.entry(*first).or_default();
            item.end = *end;
            item.attempt = item.attempt.max(file.attempt);
        }
        let attempt = self
            .batches
            .entry(number)
            .or_default()
            .entry(file.attempt)
            .or_default();
        attempt.items = items;
        attempt.epoch = file.epoch;
        attempt.tries = file.tries;
    }

    /// Takes in a report whose version is `etag`; `None` for one that can't be understood.
    pub fn add_report(&mut self, first: u64, etag: ETag, report: Option<&ChunkReport>) {
        let Some(item) = self.items.get_mut(&first) else {
            return;
        };
        item.etag = Some(etag);
        let Some(report) = report.filter(|report| report.range() == (first..item.end)) else {
            return;
        };
        let warnings = report.counts.warnings.iter();
        self.warnings
            .extend(warnings.map(|warning| cut(warning).to_owned()));
        while self.warnings.len() > FAILURES {
            self.warnings.pop_last();
        }
        let Counts {
            shards_done,
            shards_failed,
            shards_skipped,
            rows,
            ..
        } = report.counts;
        let worked = shards_done + shards_failed;
        let new = Reported::of(report, (first, item.end));
        let step = new.since(item.report.as_ref());
        self.sample.worked_ms.push(step.worked_ms);
        self.sample.shards += step.shards;
        self.sample.rows += step.rows;
        self.sample
            .ended
            .extend(new.ended_since(item.report.as_ref()));
        if step.shards > 0 {
            self.last_progress_ms = self.last_progress_ms.max(Some(new.updated_ms));
        }
        let is_furthest = worked + shards_skipped >= item.best.done + item.best.failed;
        if is_furthest || new.state == ChunkState::Done {
            let known = std::mem::take(&mut item.best.row_errors);
            item.best = Numbers {
                done: shards_done + shards_skipped,
                failed: shards_failed,
                worked,
                rows,
                matched: report.counts.matched,
                fixed_seconds: report.counts.fixed_seconds(),
                shard_seconds: report.counts.seconds.shards,
                kept: shards_skipped,
                nulls: nulls(&mut self.columns, &report.counts),
                row_errors: row_errors(&mut self.reasons, &report.counts, known),
            };
            self.failures.retain(|_, (item, _)| *item != first);
            for failure in &report.failures {
                let known = (first, cut(&failure.reason).to_owned());
                self.failures.insert(failure.path.clone(), known);
            }
            while self.failures.len() > FAILURES {
                self.failures.pop_last();
            }
        }
        item.report = Some(new);
    }

    /// Ends a look at all unfinished items at `now`: what was finished since the last one is a
    /// sample of the speed.
    pub fn end_look(&mut self, now: OffsetDateTime) {
        let sample = std::mem::take(&mut self.sample);
        self.window.look(milliseconds(now), sample);
    }

    /// Nobody is at work: the next look begins a new window.
    pub fn rest(&mut self) {
        self.window.clear();
        self.sample = Sample::default();
    }

    /// Whether an attempt is there, and has these items.
    pub(super) fn has_attempt(&self, batch: u32, attempt: u32, items: &[Item]) -> Option<bool> {
        let known = self.attempt(batch, attempt)?;
        Some(known.items == items)
    }

    /// First chunks of all items.
    pub fn all(&self) -> Vec<u64> {
        self.items.keys().copied().collect()
    }

    /// First chunks of the items that have not ended.
    pub fn unfinished(&self) -> Vec<u64> {
        let items = self.items.iter();
        let unfinished = items.filter(|(_, item)| !item.is_ended());
        unfinished.map(|(first, _)| *first).collect()
    }

    /// First chunks of the items of an attempt.
    pub fn items_of(&self, batch: u32, attempt: u32) -> Vec<u64> {
        self.attempt(batch, attempt)
            .map(|attempt| attempt.items.iter().map(|(first, _)| *first).collect())
            .unwrap_or_default()
    }

    /// Whether the report of an item has another version than the one that was read.
    pub fn is_news(&self, first: u64, etag: &ETag) -> bool {
        self.items
            .get(&first)
            .is_some_and(|item| item.etag.as_ref() != Some(etag))
    }

    /// The versions of the reports of items, as they were read last.
    pub(super) fn versions(&self, items: &[u64]) -> Vec<(u64, Option<ETag>)> {
        let known = items.iter().map(|first| {
            let item = self.items.get(first);
            (*first, item.and_then(|item| item.etag.clone()))
        });
        known.collect()
    }

    /// The item that a chunk belongs to.
    pub fn item_of(&self, chunk: u64) -> Option<Item> {
        let (first, item) = self.items.range(..=chunk).next_back()?;
        (chunk < item.end).then_some((*first, item.end))
    }

    /// Notes that an attempt is to be settled; whether that is new.
    pub fn ask_to_settle(&mut self, batch: u32, attempt: u32) -> bool {
        let Some(attempt) = self.attempt_mut(batch, attempt) else {
            return false;
        };
        let is_new = !attempt.is_being_settled && attempt.settled.is_none();
        attempt.is_being_settled |= is_new;
        is_new
    }

    /// What was asked for and has not been done has to be asked for again.
    pub fn forget_requests(&mut self) {
        for attempt in self.batches.values_mut().flat_map(BTreeMap::values_mut) {
            attempt.is_being_settled = false;
        }
    }

    /// Settles an attempt at `now`, by what the reports of its items said last. `death` is how its
    /// workers died, if they could not say so themselves.
    pub fn settle(&mut self, batch: u32, attempt: u32, death: Option<&str>, now: OffsetDateTime) {
        let Some(state) = self.attempt(batch, attempt) else {
            return;
        };
        let lost: Vec<Item> = state
            .items
            .iter()
            .filter(|(first, _)| {
                let item = self.items.get(first);
                item.is_none_or(|item| !item.is_ended_for(attempt))
            })
            .copied()
            .collect();
        let reports = lost
            .iter()
            .filter_map(|(first, _)| self.items.get(first)?.report.as_ref())
            .filter(|report| report.attempt == attempt);
        // A worker that gave up says more than one that was told to stop.
        let says_most = reports
            .filter(|report| report.reason.is_some())
            .max_by_key(|report| report.state == ChunkState::Failed);
        let told = says_most.and_then(|report| Some(report.reason.clone()?.into()));
        let open = lost.iter().filter_map(|(first, _)| {
            let item = self.items.get(first)?;
            Some(item.open_shards(*first))
        });
        let settled = Settled {
            reason: told.or_else(|| death.map(|words| format!("its workers died: {words}"))),
            lost_shards: open.sum(),
            at_ms: milliseconds(now),
            lost,
        };
        if let Some(state) = self.attempt_mut(batch, attempt) {
            state.is_being_settled = false;
            state.settled = Some(settled);
        }
    }

    /// The batches as facts.
    pub fn batches(&self) -> Vec<BatchFacts> {
        let batches = self.batches.iter();
        batches
            .map(|(batch, attempts)| BatchFacts {
                batch: *batch,
                attempts: attempts
                    .iter()
                    .map(|(number, attempt)| self.attempt_facts(*number, attempt))
                    .collect(),
                given_up: self.given_up(attempts),
            })
            .collect()
    }

    /// Items of a batch that no further attempt will have: those that their workers can't ever
    /// do, and those that a later attempt went without although they had not ended.
    fn given_up(&self, attempts: &BTreeMap<u32, AttemptState>) -> GivenUpItems {
        let mut given_up = GivenUpItems::default();
        let Some(last) = attempts.keys().next_back() else {
            return given_up;
        };
        for (number, attempt) in attempts {
            for (first, end) in &attempt.items {
                let Some(item) = self.items.get(first).filter(|item| item.attempt == *number)
                else {
                    continue;
                };
                if item.is_hopeless() || (number < last && !item.is_ended()) {
                    given_up.is_permanent |= item.is_hopeless();
                    given_up.items.push((*first, *end));
                    if given_up.reason.is_none() {
                        given_up.reason = item.reason().map(str::to_owned);
                    }
                }
            }
        }
        given_up.items.sort_unstable();
        given_up
    }

    /// Why the item that begins with this chunk was not ended, in the words of its last worker.
    pub fn reason_of(&self, first: u64) -> Option<&str> {
        self.items.get(&first)?.reason()
    }

    fn attempt_facts(&self, number: u32, attempt: &AttemptState) -> AttemptFacts {
        let states = || {
            let items = attempt.items.iter();
            items.filter_map(|(first, _)| self.items.get(first))
        };
        let ended = states().filter(|item| item.is_ended_for(number)).count();
        AttemptFacts {
            attempt: number,
            items: attempt.items.clone(),
            epoch: attempt.epoch,
            tries: attempt.tries,
            was_seen: states().any(|item| {
                let report = item.report.as_ref();
                report.is_some_and(|report| report.attempt >= number)
            }),
            ended: u32::try_from(ended).unwrap_or(u32::MAX),
            settled: attempt.settled.clone(),
        }
    }

    /// The sums over all items.
    pub fn progress(&self) -> ProgressFacts {
        let mut progress = ProgressFacts {
            last_progress_ms: self.last_progress_ms,
            ..ProgressFacts::default()
        };
        let mut hopeless = Vec::new();
        let mut nulls = vec![(0, 0); self.columns.len()];
        let mut row_errors = vec![0; self.reasons.len()];
        for (first, item) in &self.items {
            let best = &item.best;
            progress.done += best.done;
            progress.failed += best.failed;
            if item.is_hopeless() {
                progress.failed += item.open_shards(*first);
                hopeless.push((*first, item));
            }
            progress.rows += best.rows;
            progress.matched += best.matched;
            let size = (item.end - first).saturating_sub(best.kept);
            let (fixed, shards) = (best.fixed_seconds, best.shard_seconds);
            progress.costs.add(size, fixed, best.worked, shards);
            for (reason, rows) in &best.row_errors {
                if let Some(all) = row_errors.get_mut(*reason as usize) {
                    *all += rows;
                }
            }
            for (column, without, rows) in &best.nulls {
                if let Some((all_without, all_rows)) = nulls.get_mut(*column as usize) {
                    *all_without += without;
                    *all_rows += rows;
                }
            }
        }
        progress.nulls = self.columns.iter().cloned().zip(nulls).collect();
        progress.row_errors = self.reasons.iter().cloned().zip(row_errors).collect();
        progress.warnings = self.warnings.iter().cloned().collect();
        progress.failures = self
            .failures
            .iter()
            .map(|(path, (_, reason))| FailureNote {
                path: path.clone(),
                reason: reason.clone(),
            })
            .chain(hopeless.into_iter().map(|(first, item)| FailureNote {
                path: format!("shards {first} to {} of the plan", item.end - 1),
                reason: item.reason().unwrap_or(NO_REASON).to_owned(),
            }))
            .take(FAILURES)
            .collect();
        self.window.tell(self.item_shards, &mut progress);
        progress
    }

    fn attempt(&self, batch: u32, attempt: u32) -> Option<&AttemptState> {
        self.batches.get(&batch)?.get(&attempt)
    }

    fn attempt_mut(&mut self, batch: u32, attempt: u32) -> Option<&mut AttemptState> {
        self.batches.get_mut(&batch)?.get_mut(&attempt)
    }
}

/// Position of a name in a list; one that is new goes to its end, while there is room.
fn position(names: &mut Vec<String>, name: &str) -> Option<u32> {
    let known = names.iter().position(|known| known == name);
    let position = match known {
        Some(position) => position,
        None if names.len() == NAMES => return None,
        None => {
            names.push(name.to_owned());
            names.len() - 1
        }
    };
    u32::try_from(position).ok()
}

/// The counts of an item's columns, by their positions.
fn nulls(columns: &mut Vec<String>, counts: &Counts) -> Box<[(u32, u64, u64)]> {
    let counts = counts.columns.iter();
    counts
        .filter_map(|(name, column)| {
            let rows = column.populated + column.null;
            Some((position(columns, name)?, column.null, rows))
        })
        .collect()
}

/// The rows of an item that have no value for a fault of their own, by position of the reason;
/// at least those that are known: a worker that goes on where another ended tells of its own.
fn row_errors(
    reasons: &mut Vec<String>,
    counts: &Counts,
    known: Box<[(u32, u64)]>,
) -> Box<[(u32, u64)]> {
    let mut all: BTreeMap<u32, u64> = known.into_iter().collect();
    for (reason, errors) in &counts.row_errors {
        if let Some(position) = position(reasons, reason) {
            let rows = all.entry(position).or_default();
            *rows = errors.rows.max(*rows);
        }
    }
    all.into_iter().collect()
}

/// The beginning of a text that may be long.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES)]
}

#[cfg(test)]
mod tests;
