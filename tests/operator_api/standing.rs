//! What tools that wait for resources make of a status: the decision of kstatus.

use crds::SidecarJob;

use crate::sidecar_jobs::condition;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    InProgress,
    Failed,
    Current,
}

/// As kstatus decides about any kind that it doesn't know.
pub fn standing(object: &SidecarJob) -> Standing {
    let status = object.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    if observed.is_some() && observed != object.metadata.generation {
        return Standing::InProgress;
    }
    if condition(object, "Reconciling") == Some("True") {
        return Standing::InProgress;
    }
    if condition(object, "Stalled") == Some("True") {
        return Standing::Failed;
    }
    match condition(object, "Ready") {
        Some("True") | None => Standing::Current,
        Some(_) => Standing::InProgress,
    }
}
