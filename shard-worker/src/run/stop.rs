//! The request to stop: SIGTERM, SIGINT, or the end of the run.

use std::sync::Arc;

use tokio::sync::watch;

/// A request that is made once and seen everywhere.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::channel(false).0))
    }
}

impl Stop {
    /// Asks the run to stop taking shards.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Ends when it is asked.
    pub async fn requested(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as self: this only ends by a request.
        let _ = receiver.wait_for(|requested| *requested).await;
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
        });
        Ok(())
    }
}
