//! Reading manifest files.
//!
//! [`load`] answers a mistake as the API server would: unknown fields, types, bounds and
//! the CEL rules of [`crate::rules`], and lists all of them, each with its path. It also
//! applies the defaults that the API server would.
//!
//! Beyond what a cluster accepts, a file may
//!
//! * write a struct type in `spec.schemas` as a map, `{raw_score: float64}`. A cluster
//!   sorts the keys of maps, so there a type is always the list of its fields,
//!   `[{name: raw_score, type: float64}]`; the order of a map in a file is kept and
//!   [`to_yaml`] prints the list.
//! * be a pipeline of the split layout (`pipelines/`, `datasets/`, `schemas/`).

mod error;
mod print;
mod validate;
mod yaml;

use std::path::Path;

pub use error::{ManifestError, Violation};
pub use print::to_yaml;
pub use validate::validate;

use crate::{sidecar_job::SidecarJob, split_layout};

/// Reads a manifest: a `SidecarJob`, or a pipeline of the split layout.
///
/// # Errors
/// If a file can't be read, is not YAML, or has mistakes.
pub fn load(path: &Path) -> Result<SidecarJob, ManifestError> {
    let document = yaml::read(path)?;
    let job = if split_layout::is_pipeline(&document) {
        split_layout::to_job(&document, path)?
    } else {
        yaml::to_json(&document, path)?
    };
    validate(job).map_err(|violations| ManifestError::invalid(path, violations))
}

/// Reads a `SidecarJob` from text. `origin` is the name of the text in errors.
///
/// # Errors
/// If the text is not YAML or has mistakes.
pub fn parse(text: &str, origin: &Path) -> Result<SidecarJob, ManifestError> {
    let document = yaml::parse(text, origin)?;
    let job = yaml::to_json(&document, origin)?;
    validate(job).map_err(|violations| ManifestError::invalid(origin, violations))
}

pub(crate) use yaml::{read as read_yaml, value_to_json};

#[cfg(test)]
mod tests;
