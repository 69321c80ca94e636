//! What became of the shards of a chunk, and the sums over them.

use std::collections::BTreeMap;
use std::time::Instant;

use storage::state::plan::PlanLine;
use storage::state::report::{
    ColumnCounts, Counts, Failure, MAX_FAILURES, RowExample, SourceCounts,
};
use storage::state::shard_lines::{MainShard, OutputShard, ShardLine, ShardStatus};

use crate::encode;
use crate::error::{Error, ShardError};
use crate::filters::stage::RowErrors;
use crate::job::Job;
use crate::lookup::key_table::{Group, NO_GROUP};
use crate::lookup::{Found, NONE};
use crate::run::progress::Progress;
use crate::shard::LoadedShard;

/// A shard that is done or failed.
pub struct ShardOutcome {
    /// As planned.
    pub line: PlanLine,
    /// How it ended.
    pub result: Result<ShardDone, ShardError>,
}

/// A shard that was published.
pub struct ShardDone {
    /// Its rows.
    pub rows: u64,
    /// Rows that matched.
    pub matched: u64,
    /// Values of the encoded columns.
    pub columns: Vec<encode::ColumnCounts>,
    /// Rows that filters could not judge.
    pub errors: RowErrors,
    /// Rows and matches of each source.
    pub sources: Vec<(Option<Group>, u64, u64)>,
    /// Hash of main's footer.
    pub footer_sha256: String,
    /// The object.
    pub output: OutputShard,
}

/// Rows of a shard that matched, and how they spread over sources.
#[derive(Debug, Default)]
pub struct Matches {
    /// Rows that matched.
    pub matched: u64,
    /// Rows and matches of each source.
    pub sources: Vec<(Option<Group>, u64, u64)>,
}

impl Matches {
    /// Adds `rows` rows. `lookups` are those whose hits count; without any, a row matches if its
    /// shard has a sibling.
    pub fn add(
        &mut self,
        shard: &LoadedShard,
        rows: usize,
        found: &[Found],
        number: usize,
        lookups: &[usize],
    ) {
        if lookups.is_empty() {
            let matched = shard.files.siblings.iter().any(Option::is_some);
            self.matched += if matched { rows as u64 } else { 0 };
            return;
        }
        let hits: Vec<&[u32]> = lookups
            .iter()
            .map(|&lookup| &found[lookup].rows[number][..])
            .collect();
        let hit = |row: usize| hits.iter().any(|rows| rows[row] != NONE);
        let groups = found.iter().find_map(|found| found.groups.as_ref());
        let Some(groups) = groups.map(|groups| &groups[number]) else {
            self.matched += (0..rows).filter(|&row| hit(row)).count() as u64;
            return;
        };
        // The last place is for rows of no source.
        let sources = groups.iter().filter(|&&group| group != NO_GROUP).max();
        let places = sources.map_or(0, |&group| usize::from(group) + 1) + 1;
        let mut counts = vec![(0_u64, 0_u64); places];
        let nowhere = counts.len() - 1;
        for (row, &group) in groups.iter().enumerate() {
            let place = if group == NO_GROUP {
                nowhere
            } else {
                usize::from(group)
            };
            counts[place].0 += 1;
            counts[place].1 += u64::from(hit(row));
        }
        self.matched += counts.iter().map(|(_, matched)| matched).sum::<u64>();
        let named = counts
            .into_iter()
            .enumerate()
            .filter(|(_, (rows, _))| *rows > 0);
        self.sources.extend(named.map(|(place, (rows, matched))| {
            let group = (place != nowhere).then_some(place as Group);
            (group, rows, matched)
        }));
    }
}

/// An outcome that ends the run.
pub fn fatal(outcomes: &[ShardOutcome]) -> Option<Error> {
    outcomes.iter().find_map(|outcome| match &outcome.result {
        Err(ShardError::LockLost(reason)) => Some(Error::Lock(reason.clone())),
        Err(ShardError::LockUnknown(reason)) => Some(Error::LockUnknown(reason.clone())),
        Err(ShardError::Storage(error)) if error.is_refused_altogether() => {
            Some(Error::Store(error.to_string()))
        }
        _ => None,
    })
}

/// Whether shards failed because the store did not answer, or because what is beside main has
/// changed: another attempt, or a fresh plan, may do them.
pub fn unreachable(outcomes: &[ShardOutcome]) -> Option<Error> {
    let changed = outcomes.iter().find_map(|outcome| match &outcome.result {
        Err(error @ ShardError::InputChanged { .. }) => Some(error.to_string()),
        _ => None,
    });
    if let Some(reason) = changed {
        return Some(Error::InputChanged(reason));
    }
    let mut reasons = outcomes.iter().filter_map(|outcome| match &outcome.result {
        Err(error) if !error.is_deterministic() && !matches!(error, ShardError::Stopped) => {
            Some(error.to_string())
        }
        _ => None,
    });
    let first = reasons.next()?;
    let count = 1 + reasons.count();
    let reason = format!("{count} shards failed since the store did not answer: {first}");
    Some(Error::Store(reason))
}

/// The failed shards, with reasons.
pub fn failures(outcomes: &[ShardOutcome]) -> Vec<Failure> {
    let failed = outcomes.iter().filter_map(|outcome| match &outcome.result {
        Err(ShardError::Stopped) | Ok(_) => None,
        Err(error) => Some(Failure {
            path: outcome.line.path.clone(),
            reason: error.to_string(),
        }),
    });
    failed.collect()
}

/// The manifest's line for a shard.
pub fn shard_line(outcome: ShardOutcome) -> ShardLine {
    let ShardOutcome { line, result } = outcome;
    let main = |footer_sha256| MainShard {
        size: line.size,
        etag: line.etag.clone(),
        footer_sha256,
    };
    match result {
        Ok(done) => ShardLine {
            status: ShardStatus::Done,
            rows: done.rows,
            matched: done.matched,
            nulls: done
                .columns
                .iter()
                .map(|column| (column.name.clone(), column.null))
                .collect(),
            main: main(Some(done.footer_sha256)),
            inputs: line.inputs,
            output: Some(done.output),
            reason: None,
            path: line.path,
        },
        Err(error) => ShardLine {
            status: ShardStatus::Failed,
            rows: 0,
            matched: 0,
            nulls: BTreeMap::new(),
            main: main(None),
            inputs: None,
            output: None,
            reason: Some(error.to_string()),
            path: line.path,
        },
    }
}

/// Sums over the outcomes of a chunk.
#[derive(Default)]
pub struct Tally {
    seen: u64,
    counts: Counts,
    sources: BTreeMap<Option<Group>, (u64, u64)>,
}

impl Tally {
    /// Adds an outcome.
    pub fn add(&mut self, outcome: &ShardOutcome, progress: &Progress) {
        self.seen += 1;
        match &outcome.result {
            Ok(done) => {
                progress.shard_done(done.rows, done.matched);
                for (reason, (rows, first)) in &done.errors {
                    progress.rows_failed(*reason, *rows);
                    let errors = self.counts.row_errors.entry(reason.name().to_owned());
                    let first = first.iter().map(|row| RowExample {
                        path: outcome.line.path.clone(),
                        row: *row,
                    });
                    errors.or_default().add(*rows, first);
                }
                self.counts.shards_done += 1;
                self.counts.rows += done.rows;
                self.counts.matched += done.matched;
                self.counts.bytes_written += done.output.size;
                for column in &done.columns {
                    let counts: &mut ColumnCounts =
                        self.counts.columns.entry(column.name.clone()).or_default();
                    counts.populated += column.populated;
                    counts.null += column.null;
                    counts.error += column.errors;
                }
                for (group, rows, matched) in &done.sources {
                    let counts = self.sources.entry(*group).or_default();
                    counts.0 += rows;
                    counts.1 += matched;
                }
            }
            Err(ShardError::Stopped) => {}
            Err(_) => {
                progress.shard_failed();
                self.counts.shards_failed += 1;
            }
        }
    }

    /// The sums as a report has them.
    pub fn counts(
        &self,
        begun: Instant,
        plan_seconds: f64,
        pass_seconds: f64,
        job: &Job,
    ) -> Counts {
        let mut counts = self.counts.clone();
        for (group, (rows, matched)) in &self.sources {
            let name = group
                .map(|group| job.sources.names()[usize::from(group)].clone())
                .unwrap_or_default();
            counts.sources.insert(
                name,
                SourceCounts {
                    rows: *rows,
                    matched: *matched,
                },
            );
        }
        counts.warnings = job.warnings().into_iter().take(MAX_FAILURES).collect();
        counts.seconds.start = plan_seconds;
        counts.seconds.index_pass = pass_seconds;
        counts.seconds.shards = begun.elapsed().as_secs_f64() - pass_seconds;
        counts.cpu_seconds = process_cpu_seconds();
        counts.bytes_read = job.stores.requests().bytes_read;
        counts
    }
}

fn process_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
