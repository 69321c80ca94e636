//! The sequence: observe, decide, apply. One object at a time for each, several objects at once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::SidecarJob;
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use rules::decide::{decide, report, stop};
use rules::model::{Observed, Trouble};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::apply::{Applier, ApplyError};
use crate::backoff::Appearance;
use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::observe::{Look, Observer};
use crate::queue::Queue;
use crate::watch::ObjectKey;

/// A look that takes longer is given up and counts as a failure.
const LONGEST_LOOK: Duration = Duration::from_secs(120);

/// When to look again after what was seen turned out to be old.
const SOON: Duration = Duration::from_millis(500);

/// Bounds of the time until the next look without an event.
const REQUEUE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(600));

/// How long looks that are under way may take once the process is to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Looks at objects when they are due.
#[derive(Debug)]
pub struct Controller {
    /// Reads.
    pub observer: Observer,
    /// Writes.
    pub applier: Applier,
    /// Takes what the watches tell.
    pub intake: Intake,
    /// Which objects are due.
    pub queue: Arc<Queue<ObjectKey>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// How a look ended.
struct Ended {
    result: &'static str,
    /// When to look again; `None`: at the next event.
    again: Option<Duration>,
}

impl Controller {
    /// Works until `stop` says so, then lets what is under way end.
    pub async fn run(self: Arc<Self>, concurrency: usize, mut stop: watch::Receiver<bool>) {
        let free = Arc::new(Semaphore::new(concurrency));
        let mut looks = JoinSet::new();
        loop {
            while looks.try_join_next().is_some() {}
            let next = async {
                let permit = Arc::clone(&free).acquire_owned().await.ok()?;
                Some((permit, self.queue.next().await))
            };
            let (permit, key) = tokio::select! {
                next = next => match next {
                    Some(next) => next,
                    None => break,
                },
                _ = stop.wait_for(|&stop| stop) => break,
            };
            let controller = Arc::clone(&self);
            looks.spawn(async move {
                controller.look(&key).await;
                drop(permit);
            });
        }
        let drained = async { while looks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("some looks at objects did not end in time and are given up");
        }
    }

    async fn look(&self, key: &ObjectKey) {
        self.metrics.begin_reconcile(key);
        let object = self.observer.caches.sidecar_jobs.get(key);
        let looked = AssertUnwindSafe(self.reconcile(key)).catch_unwind();
        let ended = match tokio::time::timeout(LONGEST_LOOK, looked).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(_)) => self.give_up(key, object.as_deref(), "Panic", "a fault of the operator"),
            Err(_) => {
                let seconds = LONGEST_LOOK.as_secs();
                let words = format!("no end within {seconds} s");
                self.give_up(key, object.as_deref(), "TimedOut", &words)
            }
        };
        self.metrics.end_reconcile(key, ended.result);
        // It may have gone meanwhile, before this look began work for it.
        if let Some(uid) = object.and_then(|object| object.uid())
            && self.observer.caches.key_of(&uid).is_none()
        {
            self.intake.forget(&uid);
        }
        if let Some(again) = ended.again {
            let (shortest, longest) = REQUEUE;
            let again = again.clamp(shortest, longest);
            self.queue.add(key.clone(), Instant::now() + again);
        }
        self.queue.done(key);
    }

    async fn reconcile(&self, key: &ObjectKey) -> Ended {
        let memory = &self.observer.memory;
        if let Some(object) = self.observer.caches.sidecar_jobs.get(key) {
            let uid = object.uid().unwrap_or_default();
            if let Some(wait) = memory.remaining_wait(&uid, &appearance(&object)) {
                return Ended {
                    result: "ok",
                    again: Some(wait),
                };
            }
        }
        let mut observed = match self.observer.observe(key) {
            Look::Gone => {
                return Ended {
                    result: "ok",
                    again: None,
                };
            }
            Look::Unreadable(unreadable) => {
                self.applier.tell_unreadable(key, unreadable).await;
                return Ended {
                    result: "ok",
                    again: None,
                };
            }
            Look::Behind => {
                return Ended {
                    result: "again",
                    again: Some(SOON),
                };
            }
            Look::Seen(observed) => *observed,
        };
        // What is to stop is stopped before anything is waited for that may not answer.
        let stops = stop(&observed);
        if !stops.is_empty() {
            return match self.applier.stop(&observed, stops).await {
                Ok(()) => Ended {
                    result: "ok",
                    again: Some(SOON),
                },
                Err(error) => self.after(key, observed, &error).await,
            };
        }
        if let Err(error) = self.observer.ask(&mut observed).await {
            return self.fail(key, observed, &error.into()).await;
        }
        let decision = decide(&observed, Timestamp::now());
        let requeue = decision.requeue;
        match self.applier.apply(&observed, decision).await {
            Ok(()) => {
                let uid = observed.object.uid().unwrap_or_default();
                memory.note_success(&uid);
                // The trouble of before is over: say so.
                let again = match observed.trouble {
                    Some(_) => SOON,
                    None => requeue,
                };
                Ended {
                    result: "ok",
                    again: Some(again),
                }
            }
            Err(error) => self.after(key, observed, &error).await,
        }
    }

    async fn after(&self, key: &ObjectKey, observed: Observed, error: &ApplyError) -> Ended {
        if error.is_outdated() {
            tracing::debug!(object = %key, %error, "looking again");
            return Ended {
                result: "again",
                again: Some(SOON),
            };
        }
        self.fail(key, observed, error).await
    }

    /// Remembers what went wrong and says so in the status, with all else that was found.
    async fn fail(&self, key: &ObjectKey, mut observed: Observed, error: &ApplyError) -> Ended {
        let trouble = error.trouble();
        let ended = self.note_failure(key, &observed.object, trouble.clone());
        observed.trouble = Some(trouble);
        let decision = report(&observed, Timestamp::now());
        match self.applier.report(&observed, decision).await {
            Ok(()) => {}
            Err(error) => tracing::debug!(object = %key, %error, "can't say so in the status"),
        }
        ended
    }

    fn give_up(
        &self,
        key: &ObjectKey,
        object: Option<&SidecarJob>,
        reason: &'static str,
        words: &str,
    ) -> Ended {
        let trouble = Trouble {
            reason,
            message: words.to_owned(),
        };
        match object {
            Some(object) => self.note_failure(key, object, trouble),
            None => Ended {
                result: "error",
                again: None,
            },
        }
    }

    fn note_failure(&self, key: &ObjectKey, object: &SidecarJob, trouble: Trouble) -> Ended {
        let Trouble { reason, message } = &trouble;
        self.metrics.count_error(reason);
        let uid = object.uid().unwrap_or_default();
        let memory = &self.observer.memory;
        tracing::warn!(object = %key, reason, "{message}");
        let wait = memory.note_failure(&uid, appearance(object), trouble);
        Ended {
            result: "error",
            again: Some(wait),
        }
    }
}

/// What ends the waiting after failures when it changes.
fn appearance(object: &SidecarJob) -> Appearance {
    let annotations = object.annotations().iter();
    Appearance {
        generation: object.metadata.generation,
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        annotations: annotations
            .filter(|(key, _)| key.starts_with("sidecarjob.dev/"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}
