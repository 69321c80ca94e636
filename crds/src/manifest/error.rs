//! What can be wrong with a manifest.

use std::{
    fmt::{self, Write as _},
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A mistake in a manifest, and where it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The field, such as `spec.columns[2].type`; empty for the whole document.
    pub path: String,
    /// What was expected, and the way out.
    pub message: String,
}

impl Violation {
    /// A mistake at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            formatter.write_str(&self.message)
        } else {
            write!(formatter, "{}: {}", self.path, self.message)
        }
    }
}

/// Why a manifest was not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A file can't be read.
    #[error("can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not YAML.
    #[error("{} is not valid YAML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        message: String,
    },
    /// A file has mistakes.
    #[error("{}", list(path, violations))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every mistake that was found.
        violations: Vec<Violation>,
    },
}

impl ManifestError {
    pub(crate) fn invalid(path: &Path, violations: Vec<Violation>) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            violations,
        }
    }

    /// The mistakes of [`ManifestError::Invalid`]; none for the others.
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Invalid { violations, .. } => violations,
            Self::Read { .. } | Self::Syntax { .. } => &[],
        }
    }
}

fn list(path: &Path, violations: &[Violation]) -> String {
    let mut text = match violations.len() {
        1 => format!("{} has a mistake:", path.display()),
        count => format!("{} has {count} mistakes:", path.display()),
    };
    for violation in violations {
        let _ = write!(text, "\n  {violation}");
    }
    text
}
