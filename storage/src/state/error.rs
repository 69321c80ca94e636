//! What can go wrong with a state file.

use crds::InvalidRunId;

/// Result of reading or writing a state file.
pub type Result<T, E = StateError> = std::result::Result<T, E>;

/// An error about a state file; the message names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file was written by a program that knows a newer format.
    #[error(
        "{file} has format version {found} and this program knows version {known}: use the \
         program that wrote it, or another output prefix"
    )]
    Version {
        /// URI or key of the file.
        file: String,
        /// Version that the file carries.
        found: u64,
        /// The newest version that is known here.
        known: u32,
    },
    /// The file isn't what its name says.
    #[error("{file} is no {what}: {detail}; restore it, or remove it if nothing writes here")]
    Malformed {
        /// URI or key of the file.
        file: String,
        /// What the file should be.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A file that the manifest or the plan names has other bytes than it says.
    #[error("{file} has changed since it was recorded: {detail}; restore it, or remove it")]
    Damaged {
        /// URI or key of the file.
        file: String,
        /// How it differs.
        detail: String,
    },
    /// The file has more than is read of its kind, so that it is none of ours.
    #[error("{file} is no {what}: it has {detail}; remove it, and find out who may write there")]
    TooLarge {
        /// URI or key of the file.
        file: String,
        /// What the file should be.
        what: &'static str,
        /// How much it has of what, and how much is read.
        detail: String,
    },
    /// A listing didn't come in ascending byte order.
    #[error(
        "listing of {prefix} is not in byte order ({after:?} came after {before:?}): shards \
         can't be matched on this store"
    )]
    Unordered {
        /// The prefix listed.
        prefix: String,
        /// The key that came first.
        before: String,
        /// The smaller key that followed.
        after: String,
    },
    /// The text is no run id.
    #[error(transparent)]
    RunId(#[from] InvalidRunId),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] crate::error::Error),
}

impl StateError {
    /// Whether the file is there and is not what was written: it vouches for nothing.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Malformed { .. } | Self::Damaged { .. } | Self::TooLarge { .. }
        )
    }
}
