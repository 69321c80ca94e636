//! Publishing a finished shard: fenced, conditional, atomic.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use storage::state::fence::{Fence, FenceError};
use storage::state::plan::{Existing, ExistingAction, PlanLine};
use storage::state::shard_lines::OutputShard;
use storage::{Payload, PutCondition};

use crate::error::ShardError;
use crate::job::Job;
use crate::parquet_file::hex;

/// The bytes of a shard with their hash: CPU work, done before publishing.
pub fn payload(bytes: Bytes) -> Payload {
    let sha256 = hex(&Sha256::digest(&bytes));
    Payload { bytes, sha256 }
}

/// Writes the shard, if the lock still holds: asked before the work, and again by the store right
/// before the shard appears. What is there already is replaced only where the plan has looked at
/// it.
pub async fn publish(
    job: &Job,
    fence: &Fence,
    line: &PlanLine,
    payload: Payload,
) -> Result<OutputShard, ShardError> {
    match fence.check().await {
        Ok(()) => {}
        Err(FenceError::Lost(lost)) => return Err(ShardError::LockLost(lost.to_string())),
        Err(error) => return Err(ShardError::LockUnknown(error.to_string())),
    }
    if let Some(existing) = &line.existing
        && existing.action == ExistingAction::Prove
    {
        prove(job, &line.path, existing, &payload).await?;
    }
    let condition = match &line.existing {
        Some(existing) => PutCondition::Replace(existing.etag.clone()),
        None => PutCondition::Create,
    };
    let sha256 = payload.sha256.clone();
    // A put may be tried again for minutes: one that outlives the lock is given up.
    let mut lost = fence.lost();
    let put = tokio::select! {
        put = job.output.put_permitted(&line.path, payload, condition, Arc::new(fence.clone())) => put,
        Ok(reason) = lost.wait_for(Option::is_some) => {
            let reason = reason.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(ShardError::LockLost(reason));
        }
    };
    match put {
        Ok(published) => Ok(OutputShard { size: published.size, etag: published.etag, sha256: Some(sha256) }),
        Err(storage::Error::Withheld { reason, is_final, .. }) => Err(match is_final {
            true => ShardError::LockLost(reason),
            false => ShardError::LockUnknown(reason),
        }),
        Err(error) if error.is_conflict() => Err(ShardError::Conflict {
            uri: format!("{}{}", job.output.uri(), line.path),
            reason: "what is in its place was not put there by this run; it was left as it is: run again to compare it, or remove it".to_owned(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// Sees to it that a file which breaks off is the beginning of the shard that replaces it: the
/// same inputs make the same bytes, so that a leftover of ours is.
async fn prove(
    job: &Job,
    path: &str,
    existing: &Existing,
    payload: &Payload,
) -> Result<(), ShardError> {
    let uri = format!("{}{path}", job.output.uri());
    if existing.size == 0 {
        return Ok(());
    }
    if existing.size < payload.bytes.len() as u64 {
        let whole = 0..existing.size;
        let ranges = std::slice::from_ref(&whole);
        let found = job
            .output
            .read_ranges(path, ranges, Some(&existing.etag))
            .await?;
        if found
            .first()
            .is_some_and(|found| payload.bytes.starts_with(found))
        {
            return Ok(());
        }
    }
    Err(ShardError::Conflict {
        uri,
        reason: "it breaks off before a footer, and is not the beginning of the shard that belongs here; it was left as it is: remove it, or choose another output prefix (--output-prefix)".to_owned(),
    })
}
