//! The files of a run as an operator leaves them for its workers: lock, frozen manifest, plan
//! with a shard a chunk, batches.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use storage::state::RunId;
use storage::state::ancestors::open_ancestors;
use storage::state::batch::{Batch, WorkItem};
use storage::state::diff::{Decision, Policy};
use storage::state::identity::named;
use storage::state::join::{Diff, Planned, Shard};
use storage::state::lock::Identity;
use storage::state::manifest::{ManifestPart, Recorded, Totals};
use storage::state::merge::OnDamage;
use storage::state::plan::{Existing, ExistingAction, PlanLine, PlanSummary, PlanWriter};
use storage::state::side_inputs::SideInput;
use storage::state::writer::{LockRequest, WriterLock};
use storage::state::{frozen_job, layout};
use storage::{Store, Stores};
use time::OffsetDateTime;

/// Chunks in a part of the plan: few, so that items reach from one part into the next.
const CHUNKS_PER_PART: u64 = 7;

/// What a test asks for beside the manifest.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Digests of pipelines whose shards are replaced.
    pub replaces: Vec<String>,
    /// Time to live of the lock; default one minute.
    pub lock_ttl: Option<Duration>,
    /// Who holds the lock; default `tests/operator`.
    pub holder: Option<String>,
    /// Side inputs as the plan has them; by default it has none.
    pub side_inputs: Option<Vec<SideInput>>,
}

/// A run that is planned, and whose lock is held and renewed until this is dropped.
#[derive(Debug)]
pub struct RunFiles {
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// The plan.
    pub plan: PlanSummary,
    /// The lock.
    pub lock: WriterLock,
    output: Arc<dyn Store>,
}

impl RunFiles {
    /// Takes the lock of the manifest's output prefix, freezes the manifest, and plans.
    ///
    /// # Errors
    /// If the manifest has mistakes or names no output, or a file can't be written.
    pub async fn make(stores: &Stores, manifest: &str, wanted: Wanted) -> Result<Self> {
        let job = crds::manifest::parse(manifest, Path::new("job.yaml"))?;
        let prefix = job.spec.output.prefix.clone().context("no output prefix")?;
        let digest = crds::digest::pipeline_digest(&job.spec)?;
        let output = stores.open(&prefix)?;
        let run = RunId::generate();
        let lock = hold(stores, &prefix, &run, &digest, &wanted).await?;
        frozen_job::freeze(&*output, &run, &serde_json::to_value(&job)?).await?;

        let recorded = Recorded::load(&output).await?;
        let policy = Policy {
            digest: digest.clone(),
            skip_existing: job.spec.output.skip_existing,
            replaces: wanted.replaces.clone(),
        };
        let main = stores.open(&job.spec.dataset.main_prefix)?;
        let mut diff = Diff::new(
            (main.uri(), main.list_shards()),
            (output.uri(), output.list_shards()),
            Some(recorded.lines(&output, OnDamage::Skip)),
            policy,
        );
        let mut writer = PlanWriter::with_chunks_per_part(
            output.clone(),
            run.clone(),
            digest.clone(),
            CHUNKS_PER_PART,
        );
        let (mut chunk, mut kept) = (0, Totals::default());
        while let Some(shard) = diff.next_shard().await? {
            let Shard::Planned(planned) = shard else {
                continue;
            };
            if let Some(line) = plan_line(*planned, chunk, &mut kept)? {
                writer.push(&line)?;
                chunk += 1;
            }
        }
        drop(diff);
        writer.describe(None, wanted.replaces, Some(kept));
        writer.pin(wanted.side_inputs);
        let plan = writer.finish(OffsetDateTime::now_utc()).await?;
        Ok(Self {
            run,
            digest,
            plan,
            lock,
            output,
        })
    }

    /// Writes an attempt at a batch.
    ///
    /// # Errors
    /// If it can't be written, or the items overlap.
    pub async fn batch(&self, batch: u64, attempt: u32, items: &[[u64; 2]]) -> Result<()> {
        let items = items.iter().map(|item| WorkItem::from(*item));
        Batch::new(self.run.clone(), self.digest.clone(), batch, attempt, items)
            .write(&*self.output)
            .await?;
        Ok(())
    }

    /// Arguments of `shard-worker chunk` for an index of an attempt at a batch.
    pub fn arguments(&self, batch: u64, attempt: u32, index: u64) -> Vec<String> {
        let pairs = [
            ("--output-prefix", self.output.uri().to_owned()),
            ("--run", self.run.to_string()),
            ("--digest", self.digest.clone()),
            ("--epoch", self.lock.epoch().to_string()),
            ("--batch", batch.to_string()),
            ("--attempt", attempt.to_string()),
            ("--index", index.to_string()),
        ];
        pairs
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }

    /// Key of the report of the item that begins with a chunk.
    pub fn report_key(&self, first: u64) -> String {
        layout::chunk_report(&self.run, first)
    }

    /// Key of the lines of the item that begins with a chunk.
    pub fn lines_key(&self, first: u64) -> String {
        layout::chunk_lines(&self.run, first)
    }

    /// The parts that the workers left, as a manifest would name them.
    ///
    /// # Errors
    /// If they can't be read.
    pub async fn parts(&self) -> Result<Vec<Arc<ManifestPart>>> {
        let recorded = Recorded::load(&self.output).await?;
        let mut parts = recorded.parts;
        parts.retain(|part| part.run == self.run);
        Ok(parts)
    }
}

/// Takes the lock of a prefix in the name of an operator.
///
/// # Errors
/// If somebody else holds it.
pub async fn hold(
    stores: &Stores,
    prefix: &str,
    run: &RunId,
    digest: &str,
    wanted: &Wanted,
) -> Result<WriterLock> {
    let name = wanted.holder.as_deref().unwrap_or("tests/operator");
    let identity = Identity {
        holder: named(name, &format!("{name} {run}")),
        run: run.clone(),
        digest: digest.to_owned(),
        epoch: None,
    };
    let ancestors = open_ancestors(prefix, |uri| stores.open(uri))?;
    let mut request = LockRequest::new(stores.open(prefix)?, ancestors, identity);
    request.ttl = wanted.lock_ttl.unwrap_or(request.ttl);
    Ok(WriterLock::acquire(request).await?)
}

fn plan_line(planned: Planned, chunk: u64, kept: &mut Totals) -> Result<Option<PlanLine>> {
    let Planned {
        main,
        output,
        recorded,
        decision,
        inputs,
    } = planned;
    let action = match decision {
        Decision::Skip => {
            kept.shards += 1;
            let line = recorded.map(|recorded| recorded.line);
            kept.rows += line.as_ref().map_or(0, |line| line.rows);
            kept.matched += line.as_ref().map_or(0, |line| line.matched);
            return Ok(None);
        }
        Decision::Conflict { digest } => bail!("{} is of pipeline {digest:?}", main.key),
        Decision::CheckFooter => Some(ExistingAction::Check),
        Decision::Redo { .. } => Some(ExistingAction::Replace),
        Decision::Create => None,
    };
    let existing = action.zip(output).map(|(action, output)| Existing {
        size: output.size,
        etag: output.etag,
        action,
    });
    Ok(Some(PlanLine {
        chunk,
        path: main.key,
        size: main.size,
        etag: main.etag,
        rows: None,
        inputs,
        existing,
    }))
}
