//! What to do about a shard: the skip-existing decision. Pure; [`super::join`] feeds it.
//!
//! Nothing is skipped on the strength of a name. Either a line of the manifest vouches for the
//! output that is listed (same pipeline, and main and output still have the versions and sizes
//! of the line), or the footer of the output is read and decides ([`after_footer`]).

use super::merge::RecordedLine;
use super::plan::ExistingAction;
use super::shard_lines::ShardStatus;
use crate::store::{ETag, ObjectMeta};

/// How existing output is treated, and for which pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Digest of the pipeline.
    pub digest: String,
    /// Whether shards that are there and right are kept; otherwise they are made again.
    pub skip_existing: bool,
    /// Digests of earlier pipelines whose shards this one may replace; those of any other are
    /// a conflict.
    pub replaces: Vec<String>,
}

/// What to do about a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is there and right.
    Skip,
    /// Something is there that no line vouches for: its footer decides.
    CheckFooter,
    /// Nothing is there: make it, if still nothing is there when it is published.
    Create,
    /// Make it again and replace what is there, if that still has this version.
    Redo {
        /// The version to replace.
        replace: ETag,
        /// Why.
        why: RedoReason,
    },
    /// What is there is another pipeline's: refuse the prefix.
    Conflict {
        /// Digest of that pipeline; `None` if it isn't known to be any's.
        digest: Option<String>,
    },
}

/// Why a shard is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedoReason {
    /// The main shard is another one than it was made from.
    MainChanged,
    /// What is there was ours and can't be used any more: damaged, or written anew by another
    /// tool.
    Unreadable,
    /// What is there breaks off before its footer. It is replaced only if its bytes prove to be
    /// the beginning of the new shard's.
    Torn,
    /// It has another number of rows than the main shard.
    RowsDiffer,
    /// Existing shards are not to be skipped.
    Asked,
    /// It was made by an earlier pipeline, which this one replaces.
    PipelineChanged,
    /// A side input, or a sibling of its main shard, is another one than it was made from.
    SideInputChanged,
}

impl RedoReason {
    /// How the plan says it to whoever makes the shard.
    pub fn action(self) -> ExistingAction {
        match self {
            Self::Torn => ExistingAction::Prove,
            Self::MainChanged
            | Self::Unreadable
            | Self::RowsDiffer
            | Self::Asked
            | Self::PipelineChanged
            | Self::SideInputChanged => ExistingAction::Replace,
        }
    }
}

/// What a footer says of the shard that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FooterFinding {
    /// It can't be parsed, or another tool has rewritten it; but what is left of its footer says
    /// that it was this pipeline's.
    Broken,
    /// It begins as Parquet does and breaks off before a footer: perhaps the beginning of ours.
    Torn,
    /// It is Parquet without our provenance, or something else.
    Foreign,
    /// It is ours.
    Ours {
        /// Digest of the pipeline that made it.
        digest: String,
        /// Whether it was made from the main shard that is there now (footer hashes agree).
        same_main: bool,
        /// Whether it has as many rows as the main shard.
        same_rows: bool,
        /// Whether it was made from what is beside main now, as far as it says.
        same_inputs: bool,
    },
}

/// What to do about the shard of `main`, given what is listed in its place and the newest line
/// that the manifest has for it.
pub fn decide(
    main: &ObjectMeta,
    output: Option<&ObjectMeta>,
    recorded: Option<&RecordedLine>,
    policy: &Policy,
) -> Decision {
    let Some(output) = output else {
        return Decision::Create;
    };
    let Some(recorded) = recorded else {
        return Decision::CheckFooter;
    };
    let line = &recorded.line;
    let vouches_for_output = line.status == ShardStatus::Done
        && line
            .output
            .as_ref()
            .is_some_and(|made| made.etag == output.etag && made.size == output.size);
    if !vouches_for_output {
        return Decision::CheckFooter;
    }
    if recorded.part.digest != policy.digest {
        return other_pipeline(output, &recorded.part.digest, policy);
    }
    if line.main.etag != main.etag || line.main.size != main.size {
        return redo(output, RedoReason::MainChanged);
    }
    if !policy.skip_existing {
        return redo(output, RedoReason::Asked);
    }
    Decision::Skip
}

/// What becomes of a decision if the versions of what is beside main are `now` these: a shard
/// that was made from others is made again. Where either isn't known, nothing is.
pub fn with_inputs(
    decision: Decision,
    output: Option<&ObjectMeta>,
    recorded: Option<&RecordedLine>,
    now: Option<&str>,
) -> Decision {
    let before = recorded.and_then(|recorded| recorded.line.inputs.as_deref());
    match (&decision, output, before, now) {
        (Decision::Skip, Some(output), Some(before), Some(now)) if before != now => {
            redo(output, RedoReason::SideInputChanged)
        }
        _ => decision,
    }
}

/// What to do about a shard once the footer of what is there was looked at.
pub fn after_footer(output: &ObjectMeta, footer: &FooterFinding, policy: &Policy) -> Decision {
    match footer {
        FooterFinding::Broken => redo(output, RedoReason::Unreadable),
        FooterFinding::Torn => redo(output, RedoReason::Torn),
        FooterFinding::Foreign => Decision::Conflict { digest: None },
        FooterFinding::Ours { digest, .. } if *digest != policy.digest => {
            other_pipeline(output, digest, policy)
        }
        FooterFinding::Ours {
            same_main: false, ..
        } => redo(output, RedoReason::MainChanged),
        FooterFinding::Ours {
            same_rows: false, ..
        } => redo(output, RedoReason::RowsDiffer),
        FooterFinding::Ours {
            same_inputs: false, ..
        } => redo(output, RedoReason::SideInputChanged),
        FooterFinding::Ours { .. } if !policy.skip_existing => redo(output, RedoReason::Asked),
        FooterFinding::Ours { .. } => Decision::Skip,
    }
}

/// What to do about a shard that another pipeline made.
fn other_pipeline(output: &ObjectMeta, digest: &str, policy: &Policy) -> Decision {
    if policy.replaces.iter().any(|replaced| replaced == digest) {
        return redo(output, RedoReason::PipelineChanged);
    }
    Decision::Conflict {
        digest: Some(digest.to_owned()),
    }
}

fn redo(output: &ObjectMeta, why: RedoReason) -> Decision {
    Decision::Redo {
        replace: output.etag.clone(),
        why,
    }
}

#[cfg(test)]
mod tests;
