//! What is left to do: main against the output and the manifest, cut into chunks.

use std::sync::Arc;

use futures::StreamExt;
use storage::ObjectMeta;
use storage::state::RunId;
use storage::state::diff::{Decision, Policy, RedoReason};
use storage::state::join::{Diff, Planned as Found, Shard};
use storage::state::manifest::{ManifestPart, Recorded, Totals};
use storage::state::merge::OnDamage;
use storage::state::plan::{Existing, ExistingAction, PlanLine, PlanSummary, PlanWriter};
use storage::state::replaced::all_replaced;
use storage::state::shard_lines::{EncodedLines, ShardLine, encode_lines};
use time::OffsetDateTime;

use crate::error::{Error, Result};
use crate::job::Job;
use crate::run::batch::guarded_future;
use crate::run::decision::{Decided, conflict, decide, of_the_shard, refuse_foreign};
use crate::run::stop::Stop;
use crate::run::{RunOptions, state_error};
use crate::shard;

/// Shards of a chunk without a lookup: a chunk then has no fixed cost, and its lines are what
/// a killed run loses.
const PLAIN_CHUNK: u64 = 500;
/// Most shards of a chunk, so that its lines stay small.
const LARGEST_CHUNK: u64 = 20_000;
/// Shards that are looked at to estimate the memory of one.
const SAMPLES: usize = 12;
/// Footers of existing shards that are read at once.
const FOOTERS_IN_FLIGHT: usize = 64;
/// Shards without a main shard whose footers are read.
const ORPHANS_LOOKED_INTO: u64 = 10;
/// Chunk numbers from here on hold lines of shards that were found in place.
const FOUND_CHUNKS: u64 = 1 << 32;
/// Lines of such a part.
const FOUND_PART: usize = 20_000;

/// Which shards a run takes.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Glob over relative paths.
    pub glob: Option<globset::GlobMatcher>,
    /// How many at most.
    pub max_shards: Option<u64>,
}

impl Selection {
    fn takes(&self, key: &str) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.is_match(key))
    }
}

/// What is to be done, and what is there already.
#[derive(Debug)]
pub struct Planned {
    /// Shards of main.
    pub shards: u64,
    /// Shards to make.
    pub todo: u64,
    /// Of them, shards that are there but have to be made again, by reason.
    pub redo: std::collections::BTreeMap<String, u64>,
    /// Shards that are there and right, and what they hold.
    pub kept: Totals,
    /// Whether planning itself was cut short by a request to stop.
    pub interrupted: bool,
    /// Shards that should be made but were not selected.
    pub left_out: u64,
    /// Objects below the output without a main shard.
    pub orphan_count: u64,
    /// The plan, once it is written.
    pub plan: Option<PlanSummary>,
    /// Parts of the manifest for shards that were found in place by their footers, once written.
    pub kept_parts: Vec<ManifestPart>,
    /// Locks below the output.
    pub nested_locks: Vec<String>,
    /// What was recorded before.
    pub recorded: Recorded,
    /// Estimated bytes of memory a shard.
    pub shard_memory: u64,
    /// Estimated rows a shard.
    pub shard_rows: u64,
}

/// A plan that is made and not written yet: nothing is, before the prefix is held.
pub struct Unwritten {
    plan: PlanWriter,
    found: Vec<EncodedLines>,
}

impl Unwritten {
    /// Writes the plan, and the lines of shards that were found in place; for the holder of the
    /// lock. Of a plan that was cut short nothing is written.
    pub async fn write(self, job: &Job, planned: &mut Planned) -> Result<()> {
        if planned.interrupted {
            return Ok(());
        }
        for lines in self.found {
            let part = lines.write(&*job.output).await.map_err(state_error)?;
            planned.kept_parts.push(part);
        }
        if planned.todo > 0 {
            let now = OffsetDateTime::now_utc();
            planned.plan = Some(self.plan.finish(now).await.map_err(state_error)?);
        }
        Ok(())
    }
}

/// What `--dry-run` shows.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Preview {
    /// Shards of main.
    pub shards: u64,
    /// Bytes of main.
    pub bytes: u64,
    /// Shards that the manifest vouches for.
    pub vouched: u64,
    /// Shards that are there, but that no manifest vouches for.
    pub unvouched: u64,
    /// Shards to make.
    pub to_make: u64,
    /// Shards to make again.
    pub to_redo: u64,
    /// Objects of main that are no shards.
    pub skipped: u64,
    /// Whether one of those to make was opened, and can be made.
    pub opened: bool,
    /// Why others that were opened can't be made.
    pub failures: Vec<String>,
}

/// How existing output is treated. What earlier runs of this pipeline have replaced, or were about
/// to, a run goes on replacing, whoever they were: an operator may have begun it.
async fn policy(job: &Job, recorded: &Recorded, skip_existing: bool) -> Result<Policy> {
    let replaces = all_replaced(&*job.output, recorded, &job.digest, &[]).await;
    Ok(Policy {
        digest: job.digest.clone(),
        skip_existing,
        replaces: replaces.map_err(state_error)?,
    })
}

fn diff<'a>(job: &'a Job, recorded: &Recorded, policy: &Policy) -> Diff<'a> {
    let lines = recorded.lines(&job.output, OnDamage::Skip);
    let diff = Diff::new(
        (job.main.uri(), job.main.list_shards()),
        (job.output.uri(), job.output.list_shards()),
        Some(lines),
        policy.clone(),
    );
    job.compare_inputs(diff)
}

/// Shards that a preview opens, of those that a run would make.
const OPENED: usize = 3;

/// Counts what a run would do. Refuses what a run would refuse, but for shards in place that only
/// their footers tell of.
pub async fn preview(job: &Job, recorded: &Recorded, options: &RunOptions) -> Result<Preview> {
    let mut preview = Preview::default();
    let (mut first, mut orphans) = (Vec::new(), 0);
    let policy = policy(job, recorded, options.skip_existing).await?;
    refuse_parts_of_others(job, recorded, &policy)?;
    let mut diff = diff(job, recorded, &policy);
    while let Some(shard) = diff.next_shard().await.map_err(state_error)? {
        let found = match shard {
            Shard::Planned(found) => found,
            Shard::Orphan(orphan) => {
                if orphans < ORPHANS_LOOKED_INTO {
                    refuse_foreign(job, &orphan, &policy).await?;
                }
                orphans += 1;
                continue;
            }
        };
        preview.shards += 1;
        preview.bytes += found.main.size;
        let is_to_do = matches!(found.decision, Decision::Create | Decision::Redo { .. });
        if is_to_do && first.len() < OPENED && options.selection.takes(&found.main.key) {
            first.push(found.main.clone());
        }
        match found.decision {
            Decision::Skip => preview.vouched += 1,
            Decision::CheckFooter => preview.unvouched += 1,
            Decision::Create => preview.to_make += 1,
            Decision::Redo { .. } => preview.to_redo += 1,
            Decision::Conflict { digest } => {
                return Err(conflict(job, &found.main.key, digest.as_deref()));
            }
        }
    }
    preview.skipped = diff.skipped_in_main();
    if preview.shards == 0 {
        return Err(no_shard(job));
    }
    for main in first {
        let uri = format!("{}{}", job.main.uri(), main.key);
        match guarded_future(&uri, shard::open(job, main)).await {
            Ok(_) => preview.opened = true,
            Err(error) => preview.failures.push(of_the_shard(error)?.to_string()),
        }
    }
    Ok(preview)
}

/// Refuses a manifest that vouches for shards of another pipeline.
fn refuse_parts_of_others(job: &Job, recorded: &Recorded, policy: &Policy) -> Result<()> {
    let is_strange =
        |digest: &String| *digest != policy.digest && !policy.replaces.contains(digest);
    let strange = recorded.parts.iter().find(|part| is_strange(&part.digest));
    strange.map_or(Ok(()), |part| {
        Err(conflict(job, &part.first, Some(&part.digest)))
    })
}

/// The refusal of a main prefix without shards. Most likely a slip of the pen; success would hide
/// it.
pub fn no_shard(job: &Job) -> Error {
    Error::Usage(format!(
        "{} holds no shard: nothing to do; check spec.dataset.mainPrefix",
        job.main.uri()
    ))
}

/// Lists, compares and plans; writes nothing. Refuses a prefix with shards of another pipeline.
pub async fn plan(
    job: &Arc<Job>,
    run: &RunId,
    options: &RunOptions,
    stop: &Stop,
) -> Result<(Planned, Unwritten)> {
    let recorded = Recorded::load(&job.output).await.map_err(state_error)?;
    let mut planned = Planned {
        shards: 0,
        todo: 0,
        redo: std::collections::BTreeMap::new(),
        kept: Totals::default(),
        interrupted: false,
        left_out: 0,
        orphan_count: 0,
        plan: None,
        kept_parts: Vec::new(),
        nested_locks: Vec::new(),
        recorded,
        shard_memory: 0,
        shard_rows: 0,
    };
    let policy = policy(job, &planned.recorded, options.skip_existing).await?;
    refuse_parts_of_others(job, &planned.recorded, &policy)?;
    let mut unwritten = Unwritten {
        plan: PlanWriter::new(job.output.clone(), run.clone(), job.digest.clone()),
        found: Vec::new(),
    };
    unwritten.plan.describe(None, policy.replaces.clone(), None);
    unwritten.plan.pin(Some(job.keyed.clone()));
    let mut found_lines: Vec<ShardLine> = Vec::new();
    let mut sample: Vec<ObjectMeta> = Vec::new();
    let mut waiting: Vec<PlanLine> = Vec::new();
    let mut per_chunk: Option<u64> = None;
    let mut position = (0_u64, 0_u64);
    let mut diff = diff(job, &planned.recorded, &policy);
    loop {
        // A window at a time, so that footers are read in parallel and order is kept.
        let mut window: Vec<Found> = Vec::new();
        while window.len() < FOOTERS_IN_FLIGHT * 4 {
            match diff.next_shard().await.map_err(state_error)? {
                Some(Shard::Planned(found)) => window.push(*found),
                Some(Shard::Orphan(orphan)) => {
                    // A shard whose main has gone, or one that was never ours: nothing may be
                    // added beside the latter.
                    if planned.orphan_count < ORPHANS_LOOKED_INTO {
                        refuse_foreign(job, &orphan, &policy).await?;
                    }
                    planned.orphan_count += 1;
                }
                None => break,
            }
        }
        if stop.is_requested() {
            planned.interrupted = true;
            break;
        }
        if window.is_empty() {
            break;
        }
        let decided = futures::stream::iter(window)
            .map(|found| decide(job, found, &policy))
            .buffered(FOOTERS_IN_FLIGHT);
        let decided: Vec<Result<Decided>> = decided.collect().await;
        for shard in decided {
            let shard = shard?;
            planned.shards += 1;
            let selected = options.selection.takes(&shard.main.key);
            let (replace, why) = match shard.decision {
                Decision::Skip | Decision::CheckFooter => {
                    if let Some(line) = shard.kept {
                        planned.kept.shards += 1;
                        planned.kept.rows += line.rows;
                        planned.kept.matched += line.matched;
                        planned.kept.bytes += line.output.as_ref().map_or(0, |output| output.size);
                        if shard.by_footer {
                            found_lines.push(line);
                        }
                    }
                    continue;
                }
                Decision::Conflict { digest } => {
                    return Err(conflict(job, &shard.main.key, digest.as_deref()));
                }
                Decision::Create => (None, None),
                Decision::Redo { replace, why } => (Some(replace), Some(why)),
            };
            if !selected
                || options
                    .selection
                    .max_shards
                    .is_some_and(|most| planned.todo >= most)
            {
                planned.left_out += 1;
                continue;
            }
            planned.todo += 1;
            if let Some(why) = why {
                *planned.redo.entry(format!("{why:?}")).or_default() += 1;
            }
            let existing = replace.map(|etag| Existing {
                size: shard.output.map_or(0, |output| output.size),
                etag,
                action: why.map_or(ExistingAction::Replace, RedoReason::action),
            });
            waiting.push(PlanLine {
                chunk: 0,
                path: shard.main.key.clone(),
                size: shard.main.size,
                etag: shard.main.etag.clone(),
                rows: None,
                inputs: shard.inputs,
                existing,
            });
            if sample.len() < SAMPLES {
                sample.push(shard.main);
            }
            if per_chunk.is_none() && waiting.len() >= SAMPLES * 8 {
                per_chunk = Some(chunk_size(job, &sample, options, &mut planned).await);
            }
            if let Some(per_chunk) = per_chunk {
                push(&mut unwritten.plan, &mut waiting, per_chunk, &mut position)?;
            }
        }
        if found_lines.len() >= FOUND_PART {
            keep_found(job, run, &mut found_lines, &mut unwritten)?;
        }
    }
    planned.nested_locks = diff.nested_locks().to_vec();
    if !waiting.is_empty() {
        let per_chunk = match per_chunk {
            Some(per_chunk) => per_chunk,
            None => chunk_size(job, &sample, options, &mut planned).await,
        };
        push(&mut unwritten.plan, &mut waiting, per_chunk, &mut position)?;
    }
    keep_found(job, run, &mut found_lines, &mut unwritten)?;
    let changed = format!("{:?}", RedoReason::SideInputChanged);
    if let Some(count) = planned.redo.get(&changed) {
        tracing::warn!(
            "{count} shards are made again: side inputs have changed since they were made"
        );
    }
    Ok((planned, unwritten))
}

fn push(
    writer: &mut PlanWriter,
    waiting: &mut Vec<PlanLine>,
    per_chunk: u64,
    (chunk, in_chunk): &mut (u64, u64),
) -> Result<()> {
    for mut line in waiting.drain(..) {
        if *in_chunk == per_chunk {
            *chunk += 1;
            *in_chunk = 0;
        }
        *in_chunk += 1;
        line.chunk = *chunk;
        writer.push(&line).map_err(state_error)?;
    }
    Ok(())
}

/// Lines for shards that a killed run had published, so that the next run need not look at
/// their footers again.
fn keep_found(
    job: &Job,
    run: &RunId,
    lines: &mut Vec<ShardLine>,
    unwritten: &mut Unwritten,
) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let chunk = FOUND_CHUNKS + unwritten.found.len() as u64;
    let lines = std::mem::take(lines);
    let encoded = encode_lines(&*job.output, run, &job.digest, chunk, lines);
    unwritten.found.push(encoded.map_err(state_error)?);
    Ok(())
}

/// What a shard takes, by a look at some.
#[derive(Debug, Clone, Copy)]
pub struct ShardSize {
    /// Bytes of memory until it is published.
    pub memory: u64,
    /// Rows.
    pub rows: u64,
}

/// Looks at some shards to estimate what one takes.
pub async fn sample_size(job: &Arc<Job>, sample: &[ObjectMeta]) -> ShardSize {
    let width: u64 = job.lookups.iter().map(|lookup| lookup.value_width()).sum();
    let fetched = futures::stream::iter(sample.to_vec())
        .map(|meta| async move { guarded_future(&meta.key.clone(), shard::fetch(job, meta)).await })
        .buffered(SAMPLES);
    let fetched: Vec<_> = fetched.collect().await;
    let (mut memory, mut rows, mut count) = (0_u64, 0_u64, 0_u64);
    for shard in fetched.into_iter().flatten() {
        let shard_rows = shard.files.main.num_rows() as u64;
        memory += shard.memory(job) + shard_rows * (width + crate::run::batch::ROW_OVERHEAD);
        rows += shard_rows;
        count += 1;
    }
    let count = count.max(1);
    ShardSize {
        memory: (memory / count).max(64 << 10),
        rows: rows / count,
    }
}

/// How many shards make a chunk: as many as one pass over the side inputs has memory for.
async fn chunk_size(
    job: &Arc<Job>,
    sample: &[ObjectMeta],
    options: &RunOptions,
    planned: &mut Planned,
) -> u64 {
    let size = sample_size(job, sample).await;
    planned.shard_memory = size.memory;
    planned.shard_rows = size.rows;
    if !job.has_lookups() {
        return PLAIN_CHUNK;
    }
    (crate::run::batch::budget(options.memory) / planned.shard_memory).clamp(1, LARGEST_CHUNK)
}
