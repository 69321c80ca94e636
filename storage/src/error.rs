//! The one error of this crate. Every variant names the object or prefix it is about.

use std::io;

use crate::store::Withheld;

/// The source of an error, whatever its type.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The result of a storage call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How far a refusal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything that is asked of the store: credentials, the clock, a file system that is
    /// mounted read-only.
    Store,
    /// What was asked for, and perhaps nothing else: an archived object, a folder that a policy
    /// or a mode closes.
    Object,
}

/// Why a storage call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such object.
    #[error("{uri} does not exist")]
    NotFound {
        /// The object.
        uri: String,
    },

    /// There is no bucket for any object.
    #[error("{uri}: there is no such bucket; check its name, the endpoint and the region")]
    NoBucket {
        /// The object or prefix.
        uri: String,
    },

    /// A write-once object is there already, with other bytes.
    #[error("{uri} exists already and holds other bytes; it was not overwritten")]
    Exists {
        /// The object.
        uri: String,
    },

    /// An object has another version than the one that was expected.
    #[error("{uri} has changed since it was looked at; read it again")]
    Changed {
        /// The object.
        uri: String,
    },

    /// The store refused us: credentials or permissions.
    #[error("{uri}: access refused: {reason}")]
    Refused {
        /// The object or prefix.
        uri: String,
        /// How far the refusal reaches.
        scope: Scope,
        /// What was refused and what to check.
        reason: String,
        /// The store's own words.
        #[source]
        source: Option<Cause>,
    },

    /// The store did not answer usefully within the budget for retries.
    #[error("{uri}: no useful answer after {attempts} attempts in {seconds:.1} s: {reason}")]
    Unavailable {
        /// The object or prefix.
        uri: String,
        /// What the last attempt met.
        reason: String,
        /// How often it was tried.
        attempts: u32,
        /// For how long it was tried.
        seconds: f64,
        /// The last attempt's error.
        #[source]
        source: Option<Cause>,
    },

    /// Whoever gives leave to write did not.
    #[error("{uri} was not written: {reason}")]
    Withheld {
        /// The object.
        uri: String,
        /// Why there is no leave.
        reason: String,
        /// Whether it is gone for good; otherwise nobody can tell for now.
        is_final: bool,
    },

    /// An object, or the number of objects in a folder, is beyond what the reader takes in.
    #[error("{uri} has {found}, and no more than {limit} are read")]
    TooLarge {
        /// The object or folder.
        uri: String,
        /// How much it has: "123 bytes".
        found: String,
        /// The most that is read.
        limit: u64,
    },

    /// An answer of the store that can't be worked with.
    #[error("{uri}: the store's answer can't be worked with: {reason}")]
    BadAnswer {
        /// The object or prefix that was asked for.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A URI, key or range that can't be worked with.
    #[error("{uri}: {reason}")]
    Invalid {
        /// The object, prefix or URI as given.
        uri: String,
        /// What is wrong and what to write instead.
        reason: String,
    },

    /// The operating system failed a call on a local file.
    #[error("{uri}: can't {action}: {source}")]
    Io {
        /// The file or folder.
        uri: String,
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the store refused us (credentials, permissions): no retry helps.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether the store refused us whatever we ask for: every other object will meet the same.
    pub fn is_refused_altogether(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                scope: Scope::Store,
                ..
            }
        )
    }

    /// Whether what was asked for can't be worked with, whatever is tried.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }

    /// Whether there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether a condition on a write, a read or a delete did not hold.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Exists { .. } | Self::Changed { .. })
    }

    /// The object, prefix or URI that this error is about.
    pub fn uri(&self) -> &str {
        match self {
            Self::NotFound { uri }
            | Self::NoBucket { uri }
            | Self::Exists { uri }
            | Self::Changed { uri }
            | Self::Refused { uri, .. }
            | Self::Unavailable { uri, .. }
            | Self::Withheld { uri, .. }
            | Self::TooLarge { uri, .. }
            | Self::BadAnswer { uri, .. }
            | Self::Invalid { uri, .. }
            | Self::Io { uri, .. } => uri,
        }
    }

    pub(crate) fn withheld(uri: impl Into<String>, withheld: Withheld) -> Self {
        Self::Withheld {
            uri: uri.into(),
            reason: withheld.reason,
            is_final: withheld.is_final,
        }
    }

    /// Refuses an object that is larger than the reader takes in.
    pub(crate) fn check_size(uri: impl FnOnce() -> String, size: u64, limit: u64) -> Result<()> {
        if size <= limit {
            return Ok(());
        }
        Err(Self::TooLarge {
            uri: uri(),
            found: format!("{size} bytes"),
            limit,
        })
    }

    /// Refuses a folder with more objects than the reader takes in.
    pub(crate) fn check_count(
        uri: impl FnOnce() -> String,
        count: usize,
        limit: usize,
    ) -> Result<()> {
        if count <= limit {
            return Ok(());
        }
        Err(Self::TooLarge {
            uri: uri(),
            found: format!("{count} objects or more"),
            limit: limit as u64,
        })
    }

    pub(crate) fn bad_answer(uri: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::BadAnswer {
            uri: uri.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn invalid(uri: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid {
            uri: uri.into(),
            reason: reason.into(),
        }
    }

    /// The error of a local call: what a store would say where that is meant.
    pub(crate) fn local(uri: impl Into<String>, action: &'static str, source: io::Error) -> Self {
        let uri = uri.into();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { uri },
            io::ErrorKind::PermissionDenied => Self::Refused {
                uri,
                scope: Scope::Object,
                reason: format!("can't {action}; check the owner and the mode of the folder"),
                source: Some(Box::new(source)),
            },
            io::ErrorKind::ReadOnlyFilesystem => Self::Refused {
                uri,
                scope: Scope::Store,
                reason: format!("can't {action}; the file system is mounted read-only"),
                source: Some(Box::new(source)),
            },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Refused {
                uri,
                scope: Scope::Store,
                reason: format!("can't {action}; the disk, or a quota, is full"),
                source: Some(Box::new(source)),
            },
            io::ErrorKind::InvalidFilename => {
                Self::invalid(uri, "a name in it is too long for this file system")
            }
            io::ErrorKind::NotADirectory => {
                Self::invalid(uri, "a part of the path is a file, not a folder")
            }
            _ => Self::Io {
                uri,
                action,
                source,
            },
        }
    }
}
