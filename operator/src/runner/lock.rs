//! The writer lock of a run: taken, kept, and taken again after it was lost.

use std::sync::Arc;
use std::time::Duration;

use rules::model::{LockFacts, PlanFacts};
use storage::state::ancestors::open_ancestors;
use storage::state::identity::named;
use storage::state::lock::{Identity, Tenure};
use storage::state::writer::{AcquireError, LockRequest, WriterLock};

use super::bounds::name;
use super::session::Session;
use super::trouble::{self, Remedy};

const WHAT: &str = "take the writer lock";

/// Keeps the lock of a session for as long as the session lives.
pub(super) async fn keep(session: Arc<Session>) {
    loop {
        let stores = session.stores();
        let writer = acquire(&session).await;
        // Taken over and given back while it was asked for anew through other stores.
        let before = session.writer().map(|before| before.epoch());
        if before.is_some_and(|epoch| epoch != writer.epoch()) {
            session.clear_writer().await;
        }
        let mut lost = writer.lost();
        session.set_writer(writer);
        loop {
            tokio::select! {
                changed = lost.changed() => {
                    let by = lost.borrow().as_ref().and_then(|lost| lost.by.clone());
                    if changed.is_ok() || by.is_some() {
                        lose(&session, by.as_ref()).await;
                        session.nudge.notified().await;
                    }
                    break;
                }
                () = session.nudge.notified() => {
                    // Other stores: the lock is renewed through them, in the same epoch.
                    if !Arc::ptr_eq(&stores, &session.stores()) {
                        break;
                    }
                }
            }
        }
    }
}

async fn lose(session: &Session, by: Option<&Tenure>) {
    let by = by.map_or_else(
        || "nobody: the lock file was released or removed".to_owned(),
        describe,
    );
    session.clear_writer().await;
    session.update(|facts| facts.lock = LockFacts::Lost { by });
}

/// Asks for the lock until it is held.
async fn acquire(session: &Session) -> WriterLock {
    let mut failures = 0;
    if session.writer().is_none() {
        session.update(|facts| facts.lock = LockFacts::Acquiring);
    }
    loop {
        let error = match try_acquire(session).await {
            Ok(writer) => {
                session.trouble(WHAT, None);
                return writer;
            }
            Err(error) => error,
        };
        let holder = match &error {
            AcquireError::HeldBy { by, .. } => Some(describe(by)),
            AcquireError::HeldByAncestor { ancestor, by, .. } => {
                Some(format!("{}, which writes {ancestor}", describe(by)))
            }
            AcquireError::NestedLock { nested, by, .. } => {
                Some(format!("{}, which writes {nested}", describe(by)))
            }
            AcquireError::Lost(_) | AcquireError::Storage(_) => None,
        };
        if let Some(holder) = holder {
            failures = 0;
            session.trouble(WHAT, None);
            if session.writer().is_some() {
                session.clear_writer().await;
            }
            session.update(|facts| {
                facts.lock = LockFacts::Waiting { holder };
                facts.plan = without_refusal(&facts.plan);
            });
            let pause = session.budget.claims(session.pace.ask_again);
            wait(session, jittered(pause)).await;
            continue;
        }
        failures += 1;
        tracing::warn!(job = %session.job.name, %error, "can't {WHAT}; trying again");
        match trouble::of_acquire(&error) {
            Remedy::Again => {
                session.trouble(WHAT, Some(format!("can't {WHAT}: {error}; trying again")));
                session.rest(failures).await;
            }
            remedy => {
                let reason = match (remedy, &error) {
                    (Remedy::Access, AcquireError::Storage(error)) => trouble::access(error),
                    _ => "OutputUnusable",
                };
                let message = format!("can't {WHAT} of {}: {error}", session.hold.prefix);
                session.trouble(WHAT, None);
                session.refuse(reason, message);
                wait(session, jittered(session.pace.longest_pause)).await;
            }
        }
    }
}

fn without_refusal(plan: &PlanFacts) -> PlanFacts {
    match plan {
        PlanFacts::Refused { .. } => PlanFacts::None,
        other => other.clone(),
    }
}

/// Waits, but not once the stores were swapped for others.
async fn wait(session: &Session, pause: Duration) {
    let stores = session.stores();
    let nudged = async {
        loop {
            session.nudge.notified().await;
            if !Arc::ptr_eq(&stores, &session.stores()) {
                return;
            }
        }
    };
    // Either is reason enough to go on.
    let _ = tokio::time::timeout(pause, nudged).await;
}

async fn try_acquire(session: &Session) -> Result<WriterLock, AcquireError> {
    let stores = session.stores();
    let output = stores.open(&session.hold.prefix)?;
    let ancestors = open_ancestors(output.uri(), |uri| stores.open(uri))?;
    let name = format!("{}/{}", session.job.namespace, session.job.name);
    let identity = Identity {
        holder: named(&name, &session.job.uid),
        run: session.run.clone(),
        digest: session.hold.digest.clone(),
        epoch: None,
    };
    let mut request = LockRequest::new(output, ancestors, identity);
    request.ttl = session.budget.lock_ttl(session.pace.lock_ttl);
    WriterLock::acquire(request).await
}

/// Who holds a lock, without what changes at each renewal.
fn describe(by: &Tenure) -> String {
    format!(
        "{} on {}, run {}, epoch {}",
        name(&by.holder.name),
        name(&by.holder.host),
        by.run,
        by.epoch
    )
}

/// Between three and five quarters of `pause`, so that those who wait don't ask in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)
}
