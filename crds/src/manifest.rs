//! Reading manifest files.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::sidecar_job::SidecarJob;

/// A mistake in a manifest, and where it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The field, such as `spec.columns[2].type`; empty for the whole document.
    pub path: String,
    /// What was expected, and the way out.
    pub message: String,
}

/// Why a manifest was not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file can't be read.
    #[error("can't read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not YAML.
    #[error("{path} is not valid YAML: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        message: String,
    },
}

/// Reads a manifest.
///
/// # Errors
/// If it can't be read or has mistakes.
pub fn load(path: &Path) -> Result<SidecarJob, ManifestError> {
    let text = std::fs::read_to_string(path).map_err(|source| ManifestError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_yaml::from_str(&text).map_err(|error| ManifestError::Syntax {
        path: path.to_owned(),
        message: error.to_string(),
    })
}
