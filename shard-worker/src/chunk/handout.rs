//! What the operator hands out to a worker: the lock that it holds, the batch, the frozen
//! manifest and the plan.

use std::sync::Arc;

use crds::SidecarJob;
use futures::future::join4;
use serde::Deserialize;
use serde_json::Value;
use storage::Store;
use storage::state::batch::{Batch, WorkItem};
use storage::state::clock::SystemClock;
use storage::state::fence::{DEFAULT_MAX_LOOK_AGE, Fence};
use storage::state::plan::PlanSummary;
use storage::state::{StateError, frozen_job};

use crate::chunk::ChunkOptions;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::run::{fence_error, state_error};

/// Everything that a worker is given, read and checked.
#[derive(Debug)]
pub struct Handout {
    /// Follows the operator's lock.
    pub fence: Fence,
    /// The chunks to do.
    pub item: WorkItem,
    /// Digest of the run's pipeline, by the arguments.
    pub digest: String,
    /// The job, as the run uses it.
    pub manifest: SidecarJob,
    /// The same as it was read.
    raw: Value,
    /// The plan.
    pub plan: PlanSummary,
}

impl Handout {
    /// Reads all of it at once. A lost lock is told before anything else that may be wrong.
    pub async fn read(output: &Arc<dyn Store>, options: &ChunkOptions) -> Result<Self> {
        let ChunkOptions {
            run,
            epoch,
            digest,
            batch: number,
            attempt,
            index,
            ..
        } = options;
        let clock = Arc::new(SystemClock::default());
        let (fence, batch, manifest, plan) = join4(
            Fence::follow(output.clone(), run, *epoch, clock, DEFAULT_MAX_LOOK_AGE),
            Batch::read(&**output, run, *number, *attempt),
            frozen_job::read(&**output, run),
            PlanSummary::read(&**output, run),
        )
        .await;
        let fence = fence.map_err(fence_error)?;
        let lacks = |what: String| {
            let uri = output.uri();
            Error::Usage(format!(
                "{uri} has no {what} of run {run}: check --output-prefix, --run, --batch and --attempt"
            ))
        };
        let batch = batch
            .map_err(state_error)?
            .ok_or_else(|| lacks(format!("attempt {attempt} at batch {number}")))?;
        let plan = plan
            .map_err(state_error)?
            .ok_or_else(|| lacks("whole plan".to_owned()))?;
        let manifest = manifest
            .map_err(state_error)?
            .ok_or_else(|| lacks("frozen manifest".to_owned()))?;
        let item = batch.item(*index).ok_or_else(|| {
            Error::Usage(format!(
                "index {index} is out of range: attempt {attempt} at batch {number} has {} items",
                batch.items.len()
            ))
        })?;
        if item.end > plan.chunks {
            return Err(Error::Usage(format!(
                "item [{}, {}] of batch {number} is not in the plan of run {run}, which has {} chunks",
                item.first, item.end, plan.chunks
            )));
        }
        let files = [("batch", &batch.digest), ("plan", &plan.digest)];
        let digest = digest.as_ref().unwrap_or(&batch.digest).clone();
        if let Some((what, other)) = files.into_iter().find(|(_, found)| **found != digest) {
            return Err(Error::Usage(format!(
                "the {what} of run {run} is of the pipeline {other}, and this work of {digest}; plan it again"
            )));
        }
        Ok(Self {
            fence,
            item,
            digest,
            manifest: parse(&manifest)?,
            raw: manifest,
            plan,
        })
    }

    /// Whether the manifest is the one that the operator handed out. To be asked before anything
    /// that it names is opened: whoever may write below the output prefix could have left another
    /// there, to have it read with the worker's identity.
    pub fn check_digest(&self) -> Result<()> {
        let found = crds::digest::pipeline_digest(&self.manifest.spec)
            .map_err(|error| self.explain(Error::Usage(error.to_string())))?;
        if found == self.digest {
            return Ok(());
        }
        Err(self.explain(Error::Usage(format!(
            "the frozen manifest is of the pipeline {found}, and this work of {}: somebody has replaced the manifest, or operator and worker are of different releases; use images of the same one, and ask for another run",
            self.digest
        ))))
    }

    /// Whether the side inputs are those that the run was planned with: what is made from two
    /// versions of an index must not be mixed.
    pub fn check_inputs(&self, job: &Job) -> Result<()> {
        let planned = self.plan.side_inputs.iter().flatten();
        let changed = planned
            .zip(&job.keyed)
            .find(|(planned, found)| (planned.size, &planned.etag) != (found.size, &found.etag));
        changed.map_or(Ok(()), |(planned, found)| {
            Err(Error::InputChanged(format!(
                "{} has changed since run {} was planned: it was {}, it is now {}; ask for another run: it makes anew what was made from the former version",
                found.uri,
                self.plan.run,
                planned.describe(),
                found.describe()
            )))
        })
    }

    /// Of a job that can't be opened, what is wrong with its manifest, if that is why.
    pub fn explain(&self, error: Error) -> Error {
        let mistakes = match error {
            Error::Usage(_) => mistakes(&self.raw),
            _ => None,
        };
        mistakes.unwrap_or(error)
    }
}

/// Parses the manifest without the rules of the API server, which it has passed: to check them
/// takes longer than all else that a worker does before its first shard.
fn parse(manifest: &Value) -> Result<SidecarJob> {
    SidecarJob::deserialize(manifest).map_err(|error| {
        let text = format!("the frozen manifest can't be parsed: {error}");
        mistakes(manifest).unwrap_or(Error::Usage(text))
    })
}

fn mistakes(manifest: &Value) -> Option<Error> {
    let violations = crds::manifest::validate(manifest.clone()).err()?;
    let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let text = violations.join("; ");
    Some(Error::Usage(format!(
        "the frozen manifest has mistakes: {text}"
    )))
}

/// A part of a plan that is gone can't be waited for.
pub fn missing_is_broken(error: StateError) -> Error {
    match error {
        StateError::Storage(error) if error.is_not_found() => {
            Error::Usage(format!("the plan is broken: {error}; plan the run again"))
        }
        other => state_error(other),
    }
}
