//! What to do about one shard, where the listing and the manifest leave it open: its footer
//! decides.

use storage::state::diff::{Decision, FooterFinding, Policy, after_footer};
use storage::state::join::Planned as Found;
use storage::state::shard_lines::{MainShard, OutputShard, ShardLine, ShardStatus};
use storage::{ObjectMeta, Store};

use crate::error::{Error, Result, ShardError};
use crate::job::Job;
use crate::parquet_file::ParquetFile;
use crate::provenance::{MAGIC, Provenance, REMAINS, ShardInputs, remains};
use crate::run::batch::guarded_future;
use crate::shard;

/// A shard of main with its final decision.
pub struct Decided {
    /// The main shard.
    pub main: ObjectMeta,
    /// What is in its place.
    pub output: Option<ObjectMeta>,
    /// What to do.
    pub decision: Decision,
    /// What the manifest, or the footer, knows of a shard that is kept.
    pub kept: Option<ShardLine>,
    /// Whether only its footer vouches for it.
    pub by_footer: bool,
    /// Versions of what is beside main.
    pub inputs: Option<String>,
}

/// Reads the footer of what is in a shard's place, where nothing else vouches for it.
pub async fn decide(job: &Job, found: Found, policy: &Policy) -> Result<Decided> {
    let Found {
        main,
        output,
        recorded,
        decision,
        inputs,
    } = found;
    let recorded = recorded.map(|recorded| recorded.line);
    if decision != Decision::CheckFooter {
        let kept = if decision == Decision::Skip {
            recorded
        } else {
            None
        };
        return Ok(Decided {
            main,
            output,
            decision,
            kept,
            by_footer: false,
            inputs,
        });
    }
    let Some(existing) = output.clone() else {
        return Ok(Decided {
            main,
            output,
            decision: Decision::Create,
            kept: None,
            by_footer: false,
            inputs,
        });
    };
    let side = match open_guarded(&*job.output, existing.clone(), job).await {
        Ok(side) => side,
        Err(error) => {
            let reason = of_the_shard(error)?;
            let looked = match &reason {
                ShardError::Storage(_) => None,
                _ => look_closer(job, &existing).await?,
            };
            let Some(finding) = looked else {
                // It has gone, or is closed to us: the shard is made, and published only where
                // nothing is in its way.
                tracing::info!(shard = %main.key, "what is in its place cannot be read: {reason}");
                return Ok(Decided {
                    main,
                    output: None,
                    decision: Decision::Create,
                    kept: None,
                    by_footer: false,
                    inputs,
                });
            };
            tracing::info!(shard = %main.key, ?finding, "not a whole shard: {reason}");
            let decision = after_footer(&existing, &finding, policy);
            return Ok(Decided {
                main,
                output,
                decision,
                kept: None,
                by_footer: false,
                inputs,
            });
        }
    };
    let provenance = Provenance::of(&side);
    // Main that cannot be read will fail as a shard; what is there then is not ours to judge.
    let main_file = match open_guarded(&*job.main, main.clone(), job).await {
        Ok(file) => Some(file),
        Err(error) => {
            of_the_shard(error)?;
            None
        }
    };
    let same_main = main_file.as_ref().is_some_and(|file| {
        provenance
            .as_ref()
            .is_some_and(|known| known.main_footer_sha256 == file.footer_sha256)
    });
    let same_rows = main_file
        .as_ref()
        .is_some_and(|file| file.num_rows() == side.num_rows());
    let made_from = provenance.as_ref().and_then(|known| known.inputs.as_ref());
    let same_inputs = match made_from {
        // An earlier release made it: nothing is known.
        None => true,
        Some(before) => {
            let open = shard::open_siblings(job, &main.key);
            match guarded_future(&format!("{}{}", job.main.uri(), main.key), open).await {
                Ok(siblings) => *before == ShardInputs::of(job, &siblings),
                // As with main: the shard will fail, and what is there stays.
                Err(error) => {
                    of_the_shard(error)?;
                    true
                }
            }
        }
    };
    let finding = match &provenance {
        None => FooterFinding::Foreign,
        Some(known) if !known.written_by_us && known.digest == policy.digest => {
            FooterFinding::Broken
        }
        Some(known) => FooterFinding::Ours {
            digest: known.digest.clone(),
            same_main,
            same_rows,
            same_inputs,
        },
    };
    let decision = after_footer(&existing, &finding, policy);
    let has_inputs = made_from.is_some();
    let counts = provenance.map(|known| known.counts).unwrap_or_default();
    let kept = (decision == Decision::Skip).then(|| ShardLine {
        path: main.key.clone(),
        status: ShardStatus::Done,
        rows: side.num_rows() as u64,
        matched: counts.matched,
        nulls: counts.nulls,
        main: MainShard {
            size: main.size,
            etag: main.etag.clone(),
            footer_sha256: main_file.map(|file| file.footer_sha256),
        },
        inputs: inputs.clone().filter(|_| has_inputs),
        output: Some(OutputShard {
            size: existing.size,
            etag: existing.etag.clone(),
            sha256: None,
        }),
        reason: None,
    });
    Ok(Decided {
        main,
        output,
        decision,
        kept,
        by_footer: true,
        inputs,
    })
}

/// Refuses a prefix that holds something else than shards of this pipeline, or of those that it
/// replaces.
pub async fn refuse_foreign(job: &Job, orphan: &ObjectMeta, policy: &Policy) -> Result<()> {
    // What cannot be read says nothing about its maker.
    let Ok(file) = open_guarded(&*job.output, orphan.clone(), job).await else {
        return Ok(());
    };
    match Provenance::of(&file) {
        Some(known) if known.digest == job.digest || policy.replaces.contains(&known.digest) => {
            Ok(())
        }
        known => {
            let digest = known.map(|known| known.digest);
            Err(conflict(job, &orphan.key, digest.as_deref()))
        }
    }
}

/// An object that has gone, has changed or is closed to us is its shard's affair; a store that
/// refuses altogether or does not answer is the run's.
pub fn of_the_shard(error: ShardError) -> Result<ShardError> {
    match error {
        ShardError::Storage(error)
            if error.is_refused_altogether()
                || !(error.is_refused()
                    || error.is_not_found()
                    || error.is_conflict()
                    || matches!(error, storage::Error::Invalid { .. })) =>
        {
            Err(Error::Storage(error))
        }
        other => Ok(other),
    }
}

/// Looks at both ends of an object that cannot be parsed; `None` if it has gone meanwhile, or is
/// closed to us.
async fn look_closer(job: &Job, meta: &ObjectMeta) -> Result<Option<FooterFinding>> {
    let tail = meta.size.saturating_sub(REMAINS)..meta.size;
    let head = 0..meta.size.min(MAGIC.len() as u64).min(tail.start);
    let ranges: Vec<_> = [head, tail]
        .into_iter()
        .filter(|range| !range.is_empty())
        .collect();
    let read = job
        .output
        .read_ranges(&meta.key, &ranges, Some(&meta.etag))
        .await;
    match read {
        Ok(ends) => {
            let head = ends.first().map_or(&[][..], |bytes| bytes);
            let tail = ends.last().map_or(&[][..], |bytes| bytes);
            Ok(Some(remains(head, tail, &job.digest)))
        }
        Err(error) => of_the_shard(error.into()).map(|_| None),
    }
}

/// Opens a footer; a parser that panics on it makes it unreadable.
async fn open_guarded(
    store: &dyn Store,
    meta: ObjectMeta,
    job: &Job,
) -> std::result::Result<ParquetFile, ShardError> {
    let uri = format!("{}{}", store.uri(), meta.key);
    guarded_future(&uri, ParquetFile::open(store, meta, &job.hints[0])).await
}

/// The refusal of a prefix that holds shards of another pipeline.
pub fn conflict(job: &Job, key: &str, digest: Option<&str>) -> Error {
    let uri = format!("{}{key}", job.output.uri());
    let what = match digest {
        Some(digest) => format!(
            "was made by another pipeline (digest {}, this one is {})",
            short(digest),
            short(&job.digest)
        ),
        None => "is not a sidecar shard of this tool".to_owned(),
    };
    Error::Usage(format!(
        "{uri} {what}; no shard was touched: choose another output prefix (--output-prefix), or remove what is there"
    ))
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
