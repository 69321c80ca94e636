//! Keeping a lock and noticing its loss: what is asked before each publication.

use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::{Mutex, watch};

use super::RunId;
use super::clock::{Clock, Moment};
use super::document;
use super::error::StateError;
use super::layout;
use super::lock::{self, Identity, LockFile, LockState, Standing, Tenure};
use crate::store::{ETag, Permit, PutCondition, Store, Withheld};

/// How old the last look at a lock may be when something is published.
pub const DEFAULT_MAX_LOOK_AGE: Duration = Duration::from_secs(5);

/// The same once the lock has expired: somebody may take it over at any moment.
const MAX_LOOK_AGE_EXPIRED: Duration = Duration::from_secs(1);

/// How often a change of one's own file by oneself (an answer that was lost, a replica) is
/// met with another try.
const WRITE_ATTEMPTS: usize = 5;

/// The lock is no longer ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The prefix that was locked.
    pub prefix: String,
    /// Who holds it now; `None` if the lock was released or removed.
    pub by: Option<Tenure>,
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = &self.prefix;
        match &self.by {
            Some(by) => write!(
                formatter,
                "the writer lock of {prefix} was taken over by {by}"
            )?,
            None => write!(
                formatter,
                "the writer lock of {prefix} was released or removed"
            )?,
        }
        write!(
            formatter,
            "; what is published so far stands, run again to go on"
        )
    }
}

/// Why nothing may be published.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// For good: somebody else may be writing.
    #[error("{0}")]
    Lost(Box<Lost>),
    /// For now: the lock has expired and can't be read or renewed.
    #[error("can't tell whether the writer lock is still held: {0}")]
    Unknown(#[from] StateError),
}

impl From<FenceError> for Withheld {
    fn from(error: FenceError) -> Self {
        Self {
            reason: error.to_string(),
            is_final: matches!(error, FenceError::Lost(_)),
        }
    }
}

/// Tells whether the prefix may still be written. Cheap to clone and to ask.
#[derive(Debug, Clone)]
pub struct Fence {
    core: Arc<Core>,
}

impl Fence {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Follows a lock that another process holds and renews, as a worker does for the
    /// operator: `run` and `epoch` are what it was started with.
    pub async fn follow(
        store: Arc<dyn Store>,
        run: &RunId,
        epoch: u64,
        clock: Arc<dyn Clock>,
        max_look_age: Duration,
    ) -> Result<Self, FenceError> {
        let looked = clock.now();
        let found = document::read::<LockFile>(&*store, layout::WRITER).await?;
        let lost = |file: Option<&LockFile>| {
            let by = file
                .filter(|file| file.state != LockState::Released)
                .map(Tenure::from);
            let prefix = store.uri().to_owned();
            FenceError::Lost(Box::new(Lost { prefix, by }))
        };
        let Some((meta, file)) = found else {
            return Err(lost(None));
        };
        let is_followed =
            file.run == *run && file.epoch == epoch && file.state != LockState::Released;
        if !is_followed {
            return Err(lost(Some(&file)));
        }
        let core = Core {
            identity: Identity {
                holder: file.holder.clone(),
                run: run.clone(),
                digest: file.digest.clone(),
                epoch: Some(epoch),
            },
            store,
            ttl: lock::time_to_live(&file),
            clock,
            max_look_age,
            role: Role::Follower,
            seen: Mutex::new(Seen {
                file,
                etag: meta.etag,
                looked,
                renewed: looked,
            }),
            granted: StdMutex::default(),
            lost: watch::channel(None).0,
        };
        Ok(Self::new(Arc::new(core)))
    }

    /// Ask before each publication. Reads the lock only if the last look is older than the
    /// greatest age allowed; concurrent callers share one look. A holder whose lock ran out
    /// meanwhile (a process that was stopped, a store that was away) takes it up again if
    /// nobody else has: that write is a compare-and-swap, so it fails if anybody did.
    pub async fn check(&self) -> Result<(), FenceError> {
        self.core.check(false).await
    }

    /// Whether the lock is known to be lost. Looks at nothing.
    pub fn is_lost(&self) -> bool {
        self.core.lost.borrow().is_some()
    }

    /// Changes to `Some` when the lock is lost.
    pub fn lost(&self) -> watch::Receiver<Option<Lost>> {
        self.core.lost.subscribe()
    }

    /// The epoch that is held or followed.
    pub fn epoch(&self) -> u64 {
        self.core.identity.epoch.unwrap_or_default()
    }

    /// The run that holds the prefix.
    pub fn run(&self) -> &RunId {
        &self.core.identity.run
    }
}

#[async_trait]
impl Permit for Fence {
    async fn ask(&self, anew: bool) -> Result<(), Withheld> {
        Ok(self.core.check(anew).await?)
    }

    fn holds(&self) -> bool {
        !self.is_lost() && self.core.is_granted()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Holder,
    Follower,
}

/// What was last seen of one's own lock.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) file: LockFile,
    pub(crate) etag: ETag,
    /// When the file was last known to say this: the time *before* the request.
    pub(crate) looked: Moment,
    /// When it was last renewed by us: the time before the request, as in the file.
    pub(crate) renewed: Moment,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identity: Identity,
    pub(crate) ttl: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) max_look_age: Duration,
    pub(crate) role: Role,
    pub(crate) seen: Mutex<Seen>,
    /// When leave to publish was given last, and for how long.
    pub(crate) granted: StdMutex<Option<(Moment, Duration)>>,
    pub(crate) lost: watch::Sender<Option<Lost>>,
}

impl Core {
    async fn check(&self, anew: bool) -> Result<(), FenceError> {
        self.fail_if_lost()?;
        let mut seen = self.seen.lock().await;
        self.fail_if_lost()?;
        let checked = match self.role {
            Role::Holder => self.check_held(&mut seen, anew).await,
            Role::Follower => self.check_followed(&mut seen, anew).await,
        };
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        *granted = checked.is_ok().then(|| self.grant(&seen));
        checked
    }

    async fn check_held(&self, seen: &mut Seen, anew: bool) -> Result<(), FenceError> {
        let now = self.clock.now();
        if now.since(&seen.renewed) >= self.ttl {
            return self.rewrite(seen, lock::renew).await;
        }
        if !anew && now.since(&seen.looked) < self.max_look_age {
            return Ok(());
        }
        match self.look(seen).await {
            // Until it expires nobody takes it over.
            Err(FenceError::Unknown(error)) if !anew => {
                tracing::debug!(%error, "the writer lock can't be read; it hasn't expired");
                Ok(())
            }
            other => other,
        }
    }

    async fn check_followed(&self, seen: &mut Seen, anew: bool) -> Result<(), FenceError> {
        let now = self.clock.now();
        let has_expired = now.wall > seen.file.expires_at;
        let max_look_age = if has_expired {
            self.max_look_age.min(MAX_LOOK_AGE_EXPIRED)
        } else {
            self.max_look_age
        };
        if !anew && now.since(&seen.looked) < max_look_age {
            return Ok(());
        }
        match self.look(seen).await {
            Err(FenceError::Unknown(error)) if !has_expired && !anew => {
                tracing::debug!(%error, "the writer lock can't be read; it hasn't expired");
                Ok(())
            }
            other => other,
        }
    }

    /// From when and for how long a check that has just passed is good: until another look is
    /// due, or where none can be had until the lock expires.
    fn grant(&self, seen: &Seen) -> (Moment, Duration) {
        let now = self.clock.now();
        let until_expiry = match self.role {
            Role::Holder => self.ttl.saturating_sub(now.since(&seen.renewed)),
            Role::Follower => {
                Duration::try_from(seen.file.expires_at - now.wall).unwrap_or_default()
            }
        };
        let max_look_age = match until_expiry {
            Duration::ZERO => self.max_look_age.min(MAX_LOOK_AGE_EXPIRED),
            _ => self.max_look_age,
        };
        let until_look = max_look_age.saturating_sub(now.since(&seen.looked));
        let limit = match (until_look, until_expiry) {
            (Duration::ZERO, until) | (until, Duration::ZERO) => until,
            (until_look, until_expiry) => until_look.min(until_expiry),
        };
        (now, limit)
    }

    fn is_granted(&self) -> bool {
        let granted = *self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.is_some_and(|(since, limit)| self.clock.now().since(&since) < limit)
    }

    /// Says that the holder is alive.
    pub(crate) async fn renew(&self) -> Result<(), FenceError> {
        self.fail_if_lost()?;
        let mut seen = self.seen.lock().await;
        self.rewrite(&mut seen, lock::renew).await
    }

    /// Moves from claiming to held.
    pub(crate) async fn hold(&self) -> Result<(), FenceError> {
        self.fail_if_lost()?;
        let mut seen = self.seen.lock().await;
        self.rewrite(&mut seen, lock::hold).await
    }

    /// Gives the lock up; fine if it is lost already.
    pub(crate) async fn release(&self) -> Result<(), StateError> {
        if self.lost.borrow().is_some() {
            return Ok(());
        }
        let mut seen = self.seen.lock().await;
        let release = |file: &LockFile, now: OffsetDateTime, _: Duration| lock::release(file, now);
        let result = self.rewrite(&mut seen, release).await;
        self.lose(None);
        match result {
            Ok(()) | Err(FenceError::Lost(_)) => Ok(()),
            Err(FenceError::Unknown(error)) => Err(error),
        }
    }

    /// Removes the file, if it is as it was last seen.
    pub(crate) async fn remove(&self) -> Result<(), StateError> {
        let seen = self.seen.lock().await;
        self.store.delete(layout::WRITER, Some(&seen.etag)).await?;
        self.lose(None);
        Ok(())
    }

    /// Replaces the file that was last seen. If it isn't that one any more, looks whose it is.
    async fn rewrite(
        &self,
        seen: &mut Seen,
        next: impl Fn(&LockFile, OffsetDateTime, Duration) -> LockFile,
    ) -> Result<(), FenceError> {
        let mut attempt = 1;
        loop {
            let started = self.clock.now();
            let file = next(&seen.file, started.wall, self.ttl);
            let bytes = document::encode(layout::WRITER, &file)?;
            let condition = PutCondition::Replace(seen.etag.clone());
            match document::put(&*self.store, layout::WRITER, bytes, condition).await {
                Ok(published) => {
                    *seen = Seen {
                        file,
                        etag: published.etag,
                        looked: started,
                        renewed: started,
                    };
                    return Ok(());
                }
                Err(error) if attempt < WRITE_ATTEMPTS && document::is_conflict(&error) => {
                    attempt += 1;
                    self.look(seen).await?;
                }
                Err(error) => return Err(StateError::from(error).into()),
            }
        }
    }

    /// Reads the lock.
    async fn look(&self, seen: &mut Seen) -> Result<(), FenceError> {
        let looked = self.clock.now();
        let found = document::read::<LockFile>(&*self.store, layout::WRITER).await?;
        let file = found.as_ref().map(|(_, file)| file);
        if let Standing::TakenOver(by) = lock::standing(file, &self.identity, looked.wall) {
            return Err(self.lose(by));
        }
        if let Some((meta, file)) = found {
            seen.file = file;
            seen.etag = meta.etag;
            seen.looked = looked;
        }
        Ok(())
    }

    fn fail_if_lost(&self) -> Result<(), FenceError> {
        match &*self.lost.borrow() {
            Some(lost) => Err(FenceError::Lost(lost.clone().into())),
            None => Ok(()),
        }
    }

    fn lose(&self, by: Option<Tenure>) -> FenceError {
        let lost = Lost {
            prefix: self.store.uri().to_owned(),
            by,
        };
        self.lost.send_replace(Some(lost.clone()));
        FenceError::Lost(lost.into())
    }
}
