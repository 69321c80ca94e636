//! The request to stop: SIGTERM, SIGINT, or the end of the run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// How long a stop may take before the run is abandoned: a pod has 30 s, and a store that
/// does not answer is tried for minutes.
const GRACE: Duration = Duration::from_secs(20);

/// How far a stop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Urgency {
    None,
    Requested,
    Overdue,
}

/// A request that is made once and seen everywhere.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<Urgency>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::channel(Urgency::None).0))
    }
}

impl Stop {
    /// Asks the run to stop taking shards.
    pub fn request(&self) {
        self.0.send_replace(Urgency::Requested);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() >= Urgency::Requested
    }

    /// Ends when the stop has taken too long, or was asked for again.
    pub async fn overdue(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as self: this only ends by a request.
        let _ = receiver
            .wait_for(|urgency| *urgency >= Urgency::Overdue)
            .await;
    }

    /// Makes SIGTERM and SIGINT request a stop.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn on_signals(&self) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("asked to stop: finishing what is at hand");
            stop.request();
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = tokio::time::sleep(GRACE) => {}
            }
            stop.0.send_replace(Urgency::Overdue);
        });
        Ok(())
    }
}
