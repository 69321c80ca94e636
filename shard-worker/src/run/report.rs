//! What a run did, for people and as JSON (`--report`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use serde::Serialize;
use storage::RequestCounts;
use storage::state::RunId;
use storage::state::report::{Counts, Failure};

use crate::job::{Job, OutputOrigin};
use crate::lookup::PassStats;
use crate::run::planning::Planned;

/// Where the time went. Wall seconds but where it says CPU.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Timing {
    /// The whole run.
    pub wall_seconds: f64,
    /// Until the first shard could be taken.
    pub plan_seconds: f64,
    /// Reading side inputs, and looking their keys up.
    pub index_pass_seconds: f64,
    /// CPU of the passes over side inputs, with what they do for each key of the shards.
    pub index_pass_cpu_seconds: f64,
    /// CPU of decoding keys, assembling and encoding shards.
    pub shard_cpu_seconds: f64,
}

/// The report of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Version of this format.
    pub version: u32,
    /// The job.
    pub job: String,
    /// The run.
    pub run: String,
    /// Digest of the pipeline.
    pub digest: String,
    /// Main prefix.
    pub main: String,
    /// Effective output prefix.
    pub output: String,
    /// Whether the output was named by nobody and made up.
    pub output_is_timestamped: bool,
    /// Shards of main.
    pub shards: u64,
    /// Shards published.
    pub shards_done: u64,
    /// Shards failed.
    pub shards_failed: u64,
    /// Shards that were there and right.
    pub shards_kept: u64,
    /// Shards made again, by reason.
    pub shards_redone: BTreeMap<String, u64>,
    /// Shards that were not selected.
    pub shards_left_out: u64,
    /// Objects below the output without a main shard.
    pub orphans: u64,
    /// Rows published.
    pub rows: u64,
    /// Rows that matched.
    pub matched: u64,
    /// Bytes published.
    pub bytes_written: u64,
    /// Values per column.
    pub columns: BTreeMap<String, storage::state::report::ColumnCounts>,
    /// Rows that filters could not judge, per reason, with the first of them.
    pub row_errors: BTreeMap<String, storage::state::report::RowErrors>,
    /// Rows and matches per source.
    pub sources: BTreeMap<String, storage::state::report::SourceCounts>,
    /// Passes over side inputs, summed.
    pub passes: PassStats,
    /// How many passes.
    pub pass_count: u64,
    /// Time.
    pub timing: Timing,
    /// Requests to stores.
    pub requests: RequestCounts,
    /// What people should know of the side inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Every failed shard with its reason.
    pub failures: Vec<Failure>,
    /// What ended the run before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl RunReport {
    /// A report of a run that begins.
    pub fn new(job: &Job, run: &RunId) -> Self {
        Self {
            version: 1,
            job: job.name.clone(),
            run: run.as_str().to_owned(),
            digest: job.digest.clone(),
            main: job.main.uri().to_owned(),
            output: job.output_prefix.uri.clone(),
            output_is_timestamped: job.output_prefix.origin == OutputOrigin::Timestamped,
            shards: 0,
            shards_done: 0,
            shards_failed: 0,
            shards_kept: 0,
            shards_redone: BTreeMap::new(),
            shards_left_out: 0,
            orphans: 0,
            rows: 0,
            matched: 0,
            bytes_written: 0,
            columns: BTreeMap::new(),
            row_errors: BTreeMap::new(),
            sources: BTreeMap::new(),
            passes: PassStats::default(),
            pass_count: 0,
            timing: Timing::default(),
            requests: RequestCounts::default(),
            warnings: job.warnings(),
            failures: Vec::new(),
            error: None,
        }
    }

    /// Takes over what the plan says.
    pub fn planned(&mut self, planned: &Planned) {
        self.shards = planned.shards;
        self.shards_kept = planned.kept.shards;
        self.shards_redone = planned.redo.clone();
        self.shards_left_out = planned.left_out;
        self.orphans = planned.orphan_count;
    }

    /// Adds a chunk.
    pub fn chunk(&mut self, counts: &Counts, failures: Vec<Failure>) {
        self.shards_done += counts.shards_done;
        self.shards_failed += counts.shards_failed;
        self.rows += counts.rows;
        self.matched += counts.matched;
        self.bytes_written += counts.bytes_written;
        for (name, counts) in &counts.columns {
            self.columns.entry(name.clone()).or_default().add(*counts);
        }
        for (reason, errors) in &counts.row_errors {
            let into = self.row_errors.entry(reason.clone()).or_default();
            into.add(errors.rows, errors.first.iter().cloned());
        }
        for (name, counts) in &counts.sources {
            self.sources.entry(name.clone()).or_default().add(*counts);
        }
        self.failures.extend(failures);
    }

    /// Takes over what the scheduler measured.
    pub fn passes(&mut self, (count, stats): (u64, PassStats), timing: Timing) {
        self.pass_count = count;
        self.passes = stats;
        self.timing = timing;
    }

    /// Fills in what is known at the end.
    pub fn finish(&mut self, job: &Job, started: Instant) {
        self.timing.wall_seconds = started.elapsed().as_secs_f64();
        self.requests = job.stores.requests();
        self.failures
            .sort_by(|left, right| left.path.cmp(&right.path));
    }

    /// Share of rows that matched; `None` without rows.
    pub fn match_rate(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.matched as f64 / self.rows as f64)
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "job {}, run {}", self.job, self.run)?;
        writeln!(formatter, "output  {}", self.output)?;
        writeln!(
            formatter,
            "shards  {} in main: {} made, {} there already, {} failed",
            self.shards, self.shards_done, self.shards_kept, self.shards_failed
        )?;
        if !self.shards_redone.is_empty() {
            let reasons: Vec<String> = self
                .shards_redone
                .iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            writeln!(formatter, "redone  {}", reasons.join(", "))?;
        }
        if self.shards_left_out > 0 {
            writeln!(formatter, "left    {} not selected", self.shards_left_out)?;
        }
        if self.orphans > 0 {
            writeln!(
                formatter,
                "orphans {} shards in the output have no main shard",
                self.orphans
            )?;
        }
        if self.rows > 0 {
            let rate = self.match_rate().unwrap_or(0.0) * 100.0;
            writeln!(
                formatter,
                "rows    {}, of which {} matched ({rate:.1} %)",
                self.rows, self.matched
            )?;
            writeln!(
                formatter,
                "time    {:.2} s, {:.0} rows/s",
                self.timing.wall_seconds,
                self.rows as f64 / self.timing.wall_seconds.max(1e-3)
            )?;
        }
        if !self.sources.is_empty() {
            writeln!(
                formatter,
                "\n{:<28} {:>12} {:>12} {:>8}",
                "source", "rows", "matched", "match"
            )?;
            for (name, counts) in &self.sources {
                let name = if name.is_empty() { "(none)" } else { name };
                let rate = 100.0 * counts.matched as f64 / counts.rows.max(1) as f64;
                writeln!(
                    formatter,
                    "{name:<28} {:>12} {:>12} {rate:>6.1} %",
                    counts.rows, counts.matched
                )?;
            }
        }
        if !self.columns.is_empty() {
            writeln!(
                formatter,
                "\n{:<28} {:>12} {:>12} {:>12}",
                "column", "populated", "null", "error"
            )?;
            for (name, counts) in &self.columns {
                writeln!(
                    formatter,
                    "{name:<28} {:>12} {:>12} {:>12}",
                    counts.populated, counts.null, counts.error
                )?;
            }
        }
        write_row_errors(formatter, &self.row_errors)?;
        if self.passes.bad_lines > 0 {
            writeln!(
                formatter,
                "\n{} malformed lines of side inputs were skipped",
                self.passes.bad_lines
            )?;
        }
        if self.passes.bad_values > 0 {
            writeln!(
                formatter,
                "\n{} values of side inputs do not fit what is declared, and count as absent",
                self.passes.bad_values
            )?;
        }
        for warning in &self.warnings {
            writeln!(formatter, "\nWARNING {warning}")?;
        }
        if !self.failures.is_empty() {
            writeln!(formatter, "\nfailed shards:")?;
            for failure in &self.failures {
                writeln!(formatter, "  {}: {}", failure.path, failure.reason)?;
            }
        }
        Ok(())
    }
}

/// A table of the rows that filters could not judge, with the first of them.
pub fn write_row_errors(
    formatter: &mut fmt::Formatter<'_>,
    errors: &BTreeMap<String, storage::state::report::RowErrors>,
) -> fmt::Result {
    if errors.is_empty() {
        return Ok(());
    }
    writeln!(
        formatter,
        "\n{:<28} {:>12}  first",
        "rows without values", "rows"
    )?;
    for (reason, errors) in errors {
        let first: Vec<String> = errors
            .first
            .iter()
            .map(|example| format!("{} row {}", example.path, example.row))
            .collect();
        writeln!(
            formatter,
            "{reason:<28} {:>12}  {}",
            errors.rows,
            first.join(", ")
        )?;
    }
    Ok(())
}
