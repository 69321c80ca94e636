//! What a run goes by from its beginning to its end, whatever becomes of the spec meanwhile: kept
//! in `status.run`. A run that another release began may lack it; then the spec counts.

use crds::digest::is_written_hash;
use crds::{RunStatus, SidecarJob, SidecarJobSpec, StorageAccess};

/// Whether a run keeps what it goes by in a way that this release understands.
pub fn is_recorded(run: &RunStatus) -> bool {
    run.spec_hash.as_deref().is_some_and(is_written_hash)
}

/// How the present run reaches object storage; without one, how the next will. The credentials
/// are those of the spec as it is now: they may be exchanged at any time.
pub fn storage(object: &SidecarJob) -> StorageAccess {
    let spec = object.spec.storage.clone().unwrap_or_default();
    match present(object) {
        Some(run) => StorageAccess {
            credentials_secret_ref: spec.credentials_secret_ref,
            ..run.storage.clone().unwrap_or_default()
        },
        None => spec,
    }
}

/// The same for the main prefix.
pub fn main_prefix(object: &SidecarJob) -> &str {
    present(object)
        .and_then(|run| run.main_prefix.as_deref())
        .unwrap_or(&object.spec.dataset.main_prefix)
}

/// Whether the pipeline of the present run looks keys up.
pub fn looks_up(object: &SidecarJob) -> bool {
    present(object)
        .and_then(|run| run.looks_up)
        .unwrap_or_else(|| has_lookups(&object.spec))
}

/// Whether a pipeline looks keys up at all.
pub fn has_lookups(spec: &SidecarJobSpec) -> bool {
    let mut steps = spec.pipeline.iter();
    steps.any(|step| step.join_from_parquet.is_some() || step.recaption_merge.is_some())
}

/// What a run keeps of how storage is reached.
pub fn without_credentials(storage: StorageAccess) -> StorageAccess {
    StorageAccess {
        credentials_secret_ref: None,
        ..storage
    }
}

fn present(object: &SidecarJob) -> Option<&RunStatus> {
    let run = object.status.as_ref()?.run.as_ref()?;
    Some(run).filter(|run| is_recorded(run))
}
