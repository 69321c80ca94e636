//! The plan of a run: main against the output and what was recorded, one shard a chunk.
//!
//! The listings are streamed, so that memory is that of their pages and of one part of the plan,
//! whatever the number of shards.

use std::sync::Arc;
use std::time::Duration;

use crds::SidecarJob;
use crds::digest::pipeline_digest;
use crds::prefix::normalize;
use futures::FutureExt;
use futures::future::BoxFuture;
use rules::model::{PlanFacts, PlanTotals};
use serde::Deserialize;
use storage::state::RunId;
use storage::state::diff::{Decision, Policy};
use storage::state::join::{Diff, Planned, Shard};
use storage::state::manifest::{Recorded, Totals};
use storage::state::merge::OnDamage;
use storage::state::plan::{Existing, ExistingAction, PlanLine, PlanSummary, PlanWriter};
use storage::state::replaced::all_replaced;
use storage::state::sentinel::Sentinel;
use storage::state::{layout, leftovers};
use storage::{ObjectMeta, Store};
use time::OffsetDateTime;
use tokio::sync::mpsc;

use super::beside::Beside;
use super::follower::freeze;
use super::footers::{Look, Reservoir, look_at};
use super::session::Session;
use super::trouble::{Failed, Remedy, access};

/// Chunks, which are shards, in a part of the plan: about 400 KiB that a worker reads.
const CHUNKS_PER_PART: u64 = 8192;
/// Main shards whose footers are read to estimate the rows of a shard.
const SAMPLES: usize = 16;
/// Shards of the output without a main shard whose footers are read.
const ORPHANS_LOOKED_INTO: usize = 10;
/// Shards between two looks at the lock and two notes of how far the listing is.
const STEP: u64 = 10_000;
/// Lines that are handed to the writer of the plan at once, and how many times that may wait.
const LINES_AT_ONCE: usize = 1000;
const WAITING: usize = 4;
/// How long refused access is left alone.
const ACCESS_AGAIN: Duration = Duration::from_secs(60);

/// Makes the plan of a session's run, unless it is there.
pub(super) async fn make(session: Arc<Session>) {
    loop {
        let made = session
            .persist("make the plan", || guarded(&session).boxed())
            .await;
        let error = match made {
            Ok(totals) => {
                session.update(|facts| facts.plan = PlanFacts::Made(totals));
                return;
            }
            Err(error) => error,
        };
        let remedy = error.remedy();
        let reason = match (&error, remedy) {
            (Failed::Refused { reason, .. }, _) => reason,
            (Failed::State(error), Remedy::Access) => access(error),
            _ => "PlanImpossible",
        };
        tracing::warn!(job = %session.job.name, run = %session.run, %error, "no plan");
        session.refuse(reason, error.to_string());
        if remedy != Remedy::Access {
            return;
        }
        tokio::time::sleep(ACCESS_AGAIN.min(session.pace.longest_pause * 2)).await;
    }
}

/// One of the few plans and seals that are made at a time.
async fn guarded(session: &Session) -> Result<PlanTotals, Failed> {
    let _leave = session.budget.heavy().await;
    attempt(session).await
}

async fn attempt(session: &Session) -> Result<PlanTotals, Failed> {
    let output = session.output()?;
    if let Some(summary) = PlanSummary::read(&*output, &session.run).await? {
        return Ok(totals(&summary));
    }
    let manifest = freeze(session).await?;
    let Some(main) = manifest["spec"]["dataset"]["mainPrefix"].as_str() else {
        return Err(Failed::Refused {
            reason: "PlanImpossible",
            message: "the frozen manifest has no spec.dataset.mainPrefix".to_owned(),
        });
    };
    // The stores were opened for the prefixes of the object. Whoever can write below the output
    // could have left a manifest that names another one to read.
    let asked = &session.hold.main;
    if normalize(asked) != normalize(main) {
        return Err(Failed::Refused {
            reason: "PlanImpossible",
            message: format!(
                "the frozen manifest {} reads {main}, the SidecarJob reads {asked}: delete it, and \
                 ask for a re-run",
                layout::frozen_job(&session.run),
            ),
        });
    }
    let main = session.stores().open(main)?;
    let is_the_runs = || digest_of(&manifest).as_ref() == Some(&session.hold.digest);
    let named = match &session.hold.manifest {
        Some(asked) => Some(asked),
        None => is_the_runs().then_some(&manifest),
    };
    let beside = match named {
        Some(manifest) => Beside::look(&session.stores(), manifest).await?,
        None => Beside::default(),
    };
    let request = PlanRequest {
        run: session.run.clone(),
        digest: session.hold.digest.clone(),
        replaces: session.hold.replaces.clone(),
        skip_existing: session.hold.skip_existing,
        main,
        output,
        beside,
    };
    let step = |listed| is_held(session, listed).boxed();
    Ok(totals(&request.carry_out(&step).await?))
}

/// The digest of the pipeline of a frozen manifest, as this release makes it.
fn digest_of(manifest: &serde_json::Value) -> Option<String> {
    let job = SidecarJob::deserialize(manifest).ok()?;
    pipeline_digest(&job.spec).ok()
}

async fn is_held(session: &Session, listed: u64) -> Result<(), Failed> {
    session.update(|facts| {
        if matches!(facts.plan, PlanFacts::Going { .. }) {
            facts.plan = PlanFacts::Going { listed };
        }
    });
    Ok(session.fence()?.check().await?)
}

/// What a plan's summary says, as facts.
pub(super) fn totals(summary: &PlanSummary) -> PlanTotals {
    let kept = summary.kept.unwrap_or_default();
    PlanTotals {
        shards: summary.shards + kept.shards,
        todo: summary.shards,
        kept: kept.shards,
        kept_rows: kept.rows,
        kept_matched: kept.matched,
        bytes: summary.bytes,
        rows_per_shard: summary.rows_per_shard.unwrap_or_default(),
    }
}

/// Told how many main shards were listed so far; an error ends the planning, as that the writer
/// lock is no longer held.
pub type Step<'a> = dyn Fn(u64) -> BoxFuture<'a, Result<(), Failed>> + Send + Sync + 'a;

/// A plan to make.
#[derive(Debug)]
pub struct PlanRequest {
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// Digests whose shards may be replaced.
    pub replaces: Vec<String>,
    /// Keep shards that are in place and right.
    pub skip_existing: bool,
    /// The store of the main prefix.
    pub main: Arc<dyn Store>,
    /// The store of the output prefix.
    pub output: Arc<dyn Store>,
    /// What is beside main.
    pub beside: Beside,
}

/// What the listings were found to hold.
struct Found {
    kept: Totals,
    shards: u64,
    sample: Vec<ObjectMeta>,
}

impl PlanRequest {
    /// Lists, compares and writes the plan.
    ///
    /// # Errors
    /// If a store fails, the prefix holds something else, main holds no shard, or `step` says so.
    pub async fn carry_out(&self, step: &Step<'_>) -> Result<PlanSummary, Failed> {
        let recorded = Recorded::load(&self.output).await?;
        let replaces = all_replaced(&*self.output, &recorded, &self.digest, &self.replaces).await?;
        let strange = recorded
            .parts
            .iter()
            .find(|part| part.digest != self.digest && !replaces.contains(&part.digest));
        if let Some(part) = strange {
            return Err(self.conflict(&part.first, Some(&part.digest)));
        }
        let policy = Policy {
            digest: self.digest.clone(),
            skip_existing: self.skip_existing,
            replaces: replaces.clone(),
        };
        let (lines, incoming) = mpsc::channel(WAITING);
        let compare = self.compare(&recorded, policy, lines, step);
        let (found, mut writer) = tokio::try_join!(compare, self.write(incoming))?;
        if found.shards == 0 {
            let message = format!(
                "{} holds no shard: nothing to do; correct spec.dataset.mainPrefix, or wait for \
                 its data and ask for another run",
                self.main.uri()
            );
            return Err(Failed::Refused {
                reason: "NoShards",
                message,
            });
        }
        let rows_per_shard = self.rows_per_shard(&found.sample).await?;
        let kept = (found.kept != Totals::default()).then_some(found.kept);
        writer.describe(rows_per_shard, replaces, kept);
        writer.pin(self.beside.keyed.clone());
        step(found.shards).await?;
        if found.kept.shards < found.shards {
            // From here on the output isn't whole; and nobody is at work yet.
            Sentinel::remove(&*self.output).await?;
            if let Err(error) = leftovers::sweep(&*self.output, &*self.main).await {
                tracing::warn!(%error, "what killed writers left can't be removed");
            }
        }
        Ok(writer.finish(OffsetDateTime::now_utc()).await?)
    }

    async fn compare(
        &self,
        recorded: &Recorded,
        policy: Policy,
        lines: mpsc::Sender<Vec<PlanLine>>,
        step: &Step<'_>,
    ) -> Result<Found, Failed> {
        let replaces = policy.replaces.clone();
        let mut diff = Diff::new(
            (self.main.uri(), self.main.list_shards()),
            (self.output.uri(), self.output.list_shards()),
            Some(recorded.lines(&self.output, OnDamage::Skip)),
            policy,
        );
        if let Some(keyed) = &self.beside.keyed {
            let siblings = self.beside.siblings.iter();
            let listings = siblings.map(|store| (store.uri(), store.list_shards()));
            diff = diff.with_inputs(keyed.clone(), listings.collect());
        }
        let mut kept = Totals::default();
        let (mut shards, mut chunk) = (0_u64, 0_u64);
        let mut sample = Reservoir::new(SAMPLES);
        let mut waiting = Vec::with_capacity(LINES_AT_ONCE);
        let mut orphans = Vec::new();
        while let Some(shard) = diff.next_shard().await? {
            let planned = match shard {
                Shard::Planned(planned) => *planned,
                Shard::Orphan(orphan) => {
                    if orphans.len() < ORPHANS_LOOKED_INTO {
                        orphans.push(orphan);
                    }
                    continue;
                }
            };
            shards += 1;
            if shards.is_multiple_of(STEP) {
                step(shards).await?;
            }
            match self.line(&planned, chunk)? {
                None => add_kept(&mut kept, planned),
                Some(line) => {
                    sample.offer(|| planned.main);
                    chunk += 1;
                    waiting.push(line);
                }
            }
            if waiting.len() == LINES_AT_ONCE {
                let full = std::mem::replace(&mut waiting, Vec::with_capacity(LINES_AT_ONCE));
                // The writer has failed; its error is the one that counts.
                if lines.send(full).await.is_err() {
                    break;
                }
            }
        }
        self.refuse_foreign(&orphans, &replaces).await?;
        // As above.
        let _ = lines.send(waiting).await;
        Ok(Found {
            kept,
            shards,
            sample: sample.into_sample(),
        })
    }

    /// The line of a shard that has to be made or looked at.
    fn line(&self, planned: &Planned, chunk: u64) -> Result<Option<PlanLine>, Failed> {
        let action = match &planned.decision {
            Decision::Skip => return Ok(None),
            Decision::Create => None,
            Decision::CheckFooter => Some(ExistingAction::Check),
            Decision::Redo { why, .. } => Some(why.action()),
            Decision::Conflict { digest } => {
                return Err(self.conflict(&planned.main.key, digest.as_deref()));
            }
        };
        let existing = planned.output.as_ref().zip(action);
        Ok(Some(PlanLine {
            chunk,
            path: planned.main.key.clone(),
            size: planned.main.size,
            etag: planned.main.etag.clone(),
            rows: None,
            inputs: planned.inputs.clone(),
            existing: existing.map(|(output, action)| Existing {
                size: output.size,
                etag: output.etag.clone(),
                action,
            }),
        }))
    }

    async fn write(
        &self,
        mut incoming: mpsc::Receiver<Vec<PlanLine>>,
    ) -> Result<PlanWriter, Failed> {
        let mut writer = PlanWriter::with_chunks_per_part(
            Arc::clone(&self.output),
            self.run.clone(),
            self.digest.clone(),
            CHUNKS_PER_PART,
        );
        while let Some(lines) = incoming.recv().await {
            for line in lines {
                writer.push(&line)?;
            }
            writer.write_finished().await?;
        }
        Ok(writer)
    }

    /// Rows of a shard, on average over those whose footers can be read.
    async fn rows_per_shard(&self, sample: &[ObjectMeta]) -> Result<Option<f64>, Failed> {
        let looks = look_at(&*self.main, sample).await?;
        let rows: Vec<u64> = looks
            .into_iter()
            .filter_map(|look| match look {
                Look::Read(footer) => Some(footer.rows),
                Look::Unreadable(_) | Look::Refused(_) => None,
            })
            .collect();
        let sum: u64 = rows.iter().sum();
        Ok((!rows.is_empty()).then(|| sum as f64 / rows.len() as f64))
    }

    /// Refuses a prefix that holds something else than shards of this pipeline, or of those
    /// that it replaces.
    async fn refuse_foreign(
        &self,
        orphans: &[ObjectMeta],
        replaces: &[String],
    ) -> Result<(), Failed> {
        let looks = look_at(&*self.output, orphans).await?;
        for (orphan, look) in orphans.iter().zip(looks) {
            // What can't be read says nothing of its maker.
            let Look::Read(footer) = look else { continue };
            let is_ours = footer
                .digest
                .as_ref()
                .is_some_and(|digest| *digest == self.digest || replaces.contains(digest));
            if !is_ours {
                return Err(self.conflict(&orphan.key, footer.digest.as_deref()));
            }
        }
        Ok(())
    }

    fn conflict(&self, key: &str, digest: Option<&str>) -> Failed {
        let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
        let what = match digest {
            Some(digest) => format!(
                "was made by another pipeline (digest {}, this one is {})",
                short(digest),
                short(&self.digest)
            ),
            None => "is no sidecar shard".to_owned(),
        };
        Failed::Refused {
            reason: "PrefixConflict",
            message: format!(
                "{}{key} {what}, and not by this SidecarJob; no shard was touched: choose another \
                 output prefix, or remove what is there",
                self.output.uri()
            ),
        }
    }
}

fn add_kept(kept: &mut Totals, planned: Planned) {
    kept.shards += 1;
    if let Some(recorded) = planned.recorded {
        kept.rows += recorded.line.rows;
        kept.matched += recorded.line.matched;
    }
    kept.bytes += planned.output.map_or(0, |output| output.size);
}
