//! What the API server tells without being asked: SidecarJobs, their Jobs and their pods.
//!
//! Each kind is listed a page at a time, then watched; what is kept of an object is the few
//! values that decisions rest on. An object that can't be read is passed over and named; it
//! never stops the others. A watch that falls silent is noticed, because the server sends
//! bookmarks, and opened again.

mod cache;
mod health;
mod job;
mod pod;
mod stream;

pub use cache::{Cache, ObjectKey};
pub use health::{SILENT_AFTER, WatchHealth};
pub use job::{KeptJob, keep_job};
pub use pod::{KeptPod, PodState, WorkerPod, keep_pod, sum_pods};
pub use stream::{Selection, Sink, watch};
