//! `job.json`: the manifest as a run uses it. It never changes, whatever becomes of the object
//! that it was taken from, so that all workers of a run do the same.
//!
//! Its format is that of a SidecarJob manifest, whose `apiVersion` is its version. Nothing of
//! it but that is looked at here.

use serde_json::Value;

use super::document;
use super::error::Result;
use super::{RunId, layout, limits};
use crate::store::{PutCondition, Store};

const WHAT: &str = "frozen manifest";

/// Writes the manifest of a run that begins, and returns the one that counts: the first.
///
/// # Errors
/// If it can't be written, or isn't a manifest.
pub async fn freeze(store: &dyn Store, run: &RunId, manifest: &Value) -> Result<Value> {
    let key = layout::frozen_job(run);
    check(&document::uri(store, &key), manifest)?;
    let mut bytes = serde_json::to_vec_pretty(manifest)
        .map_err(|error| document::malformed(&key, WHAT, error))?;
    bytes.push(b'\n');
    document::check_size(&key, WHAT, bytes.len() as u64, limits::FROZEN_JOB)?;
    match document::put(store, &key, bytes, PutCondition::Create).await {
        Ok(_) => Ok(manifest.clone()),
        Err(error) if document::is_conflict(&error) => match read(store, run).await? {
            Some(first) => Ok(first),
            None => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Reads the manifest of a run; `None` if none was frozen.
///
/// # Errors
/// If it can't be read, or isn't a manifest.
pub async fn read(store: &dyn Store, run: &RunId) -> Result<Option<Value>> {
    let key = layout::frozen_job(run);
    let Some((_, bytes)) = document::read_bytes(store, &key, WHAT, limits::FROZEN_JOB).await?
    else {
        return Ok(None);
    };
    let file = document::uri(store, &key);
    let manifest = document::from_json(&file, WHAT, &bytes)?;
    check(&file, &manifest)?;
    Ok(Some(manifest))
}

fn check(file: &str, manifest: &Value) -> Result<()> {
    for field in ["apiVersion", "kind"] {
        if !manifest[field].is_string() {
            let detail = format!("it has no {field}");
            return Err(document::malformed(file, WHAT, detail));
        }
    }
    if !manifest["spec"].is_object() {
        return Err(document::malformed(file, WHAT, "it has no spec"));
    }
    Ok(())
}
