//! What can go wrong: with a shard (the others go on) or with the run (it ends).

/// A shard that could not be done. The run goes on; the report lists it with this reason.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The store could not read or write an object of the shard.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A file is not readable Parquet, or contradicts itself.
    #[error("{uri}: {reason}")]
    Malformed {
        /// The file.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file lacks a column, or has it with a type that cannot be used.
    #[error("{uri}: {reason}")]
    Schema {
        /// The file.
        uri: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A row-aligned file does not line up with the main shard.
    #[error("{uri}: not aligned with the main shard: {reason}")]
    Misaligned {
        /// The file.
        uri: String,
        /// Row and values that differ.
        reason: String,
    },
    /// The output prefix holds something else under this shard's name.
    #[error("{uri}: {reason}")]
    Conflict {
        /// The object.
        uri: String,
        /// What it is, and the way out.
        reason: String,
    },
    /// A library panicked on this shard's bytes.
    #[error("panic while working on {uri}: {message}")]
    Panic {
        /// The shard.
        uri: String,
        /// The panic's message.
        message: String,
    },
    /// The writer lock was lost: nothing more may be published.
    #[error("{0}")]
    LockLost(String),
    /// Nobody can tell whether the writer lock is still held: nothing may be published for now.
    #[error("{0}")]
    LockUnknown(String),
    /// What is beside the main shard is another version than the plan says.
    #[error("{uri}: {reason}")]
    InputChanged {
        /// The main shard.
        uri: String,
        /// What has changed, and the way out.
        reason: String,
    },
    /// The run was asked to stop before this shard was done.
    #[error("stopped before it was done")]
    Stopped,
}

impl ShardError {
    /// A [`ShardError::Malformed`] from any error.
    pub fn malformed(uri: &str, error: impl std::fmt::Display) -> Self {
        Self::Malformed {
            uri: uri.to_owned(),
            reason: error.to_string(),
        }
    }

    /// A [`ShardError::Schema`].
    pub fn schema(uri: &str, reason: impl Into<String>) -> Self {
        Self::Schema {
            uri: uri.to_owned(),
            reason: reason.into(),
        }
    }

    /// Whether another try on the same bytes would fail in the same way.
    pub fn is_deterministic(&self) -> bool {
        match self {
            Self::Storage(error) => !matches!(
                error,
                storage::Error::Unavailable { .. }
                    | storage::Error::BadAnswer { .. }
                    | storage::Error::Io { .. }
            ),
            Self::LockLost(_)
            | Self::LockUnknown(_)
            | Self::InputChanged { .. }
            | Self::Stopped => false,
            _ => true,
        }
    }
}

/// An error that ends the run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest, or the command line, asks for something that cannot be done.
    #[error("{0}")]
    Usage(String),
    /// The manifest is not valid.
    #[error(transparent)]
    Manifest(#[from] crds::manifest::ManifestError),
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The store refused altogether, or failed, while shards or a side input were read: it would
    /// for the others as well.
    #[error("{0}")]
    Store(String),
    /// A side input cannot be used.
    #[error("{uri}: {reason}")]
    SideInput {
        /// The file or prefix.
        uri: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A side input is another one than the run was planned with: a fresh plan can do it.
    #[error("{0}")]
    InputChanged(String),
    /// Another writer holds the prefix, or the lock was lost.
    #[error("{0}")]
    Lock(String),
    /// The lock has expired and can be neither read nor renewed.
    #[error("{0}")]
    LockUnknown(String),
}

impl Error {
    /// Whether no retry mends it: somebody has to change the manifest or a side input.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Usage(_)
                | Self::Manifest(_)
                | Self::SideInput { .. }
                | Self::Storage(storage::Error::Invalid { .. } | storage::Error::NoBucket { .. })
        )
    }

    /// A [`Error::SideInput`] from any error.
    pub fn side_input(uri: &str, error: impl std::fmt::Display) -> Self {
        Self::SideInput {
            uri: uri.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Result of work that concerns the whole run.
pub type Result<T, E = Error> = std::result::Result<T, E>;
