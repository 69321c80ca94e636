//! Whether a watch still lives.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// A watch without an event or a bookmark (the server sends one about each minute) for so long
/// is dead, whatever its connection says.
pub const SILENT_AFTER: Duration = Duration::from_secs(180);

/// How one watch does.
#[derive(Debug)]
pub struct WatchHealth {
    /// What is watched, for metrics.
    pub kind: &'static str,
    /// The namespace, if it is only one.
    pub namespace: Option<String>,
    synced: AtomicBool,
    /// Milliseconds since the epoch of Unix.
    last_event: AtomicI64,
    restarts: AtomicU64,
}

impl WatchHealth {
    /// A watch that begins now.
    pub fn new(kind: &'static str, namespace: Option<&str>) -> Self {
        Self {
            kind,
            namespace: namespace.map(str::to_owned),
            synced: AtomicBool::new(false),
            last_event: AtomicI64::new(Timestamp::now().as_millisecond()),
            restarts: AtomicU64::new(0),
        }
    }

    /// Whether it has been listed once.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// When the server last said something, in milliseconds since the epoch of Unix.
    pub fn last_event_ms(&self) -> i64 {
        self.last_event.load(Ordering::Relaxed)
    }

    /// How often it had to be begun again after an error or silence.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub(super) fn note_event(&self) {
        let now = Timestamp::now().as_millisecond();
        self.last_event.store(now, Ordering::Relaxed);
    }

    pub(super) fn note_listed(&self) {
        self.note_event();
        self.synced.store(true, Ordering::Release);
    }

    pub(super) fn note_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}
