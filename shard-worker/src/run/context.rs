//! What all parts of a run share.

use std::sync::Arc;
use std::time::Instant;

use storage::state::RunId;
use storage::state::fence::Fence;

use crate::job::Job;
use crate::run::progress::Progress;
use crate::run::stop::Stop;

/// A run whose prefix is held, or that follows one who holds it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The job.
    pub job: Arc<Job>,
    /// The run.
    pub run: RunId,
    /// Bytes of memory.
    pub memory: u64,
    /// Threads.
    pub threads: usize,
    /// Whether anything may still be published.
    pub fence: Fence,
    /// Counters for people.
    pub progress: Arc<Progress>,
    /// The request to stop.
    pub stop: Stop,
    /// When the process began.
    pub started: Instant,
}
