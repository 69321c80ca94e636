//! The effects of the writer lock: taking it, keeping it, giving it up.
//!
//! How exactly one of several writers of the same, or of nested, prefixes wins:
//!
//! 1. *Claim.* The own `writer.json` is created, or replaced if it is released or has expired,
//!    in the state `claiming`. Compare-and-swap: one of those who race for one file wins.
//! 2. *Look up.* The locks of all prefixes above are read. If one is claimed or held, the claim
//!    is given up: **the deeper prefix yields**.
//! 3. *Look down.* The locks below, which the listing of the prefix has found, are read. One
//!    that is `held` was there first: the claim is given up. One that is `claiming` is waited
//!    for: its owner either has seen our claim and yields, or hasn't and will hold.
//! 4. *Hold.* The state becomes `held`. Only now may anything be published.
//!
//! Since each writes before it looks, of two nested claims at least one sees the other; since a
//! claim below always yields to one above that it sees, and one above only to what is held,
//! exactly one of them goes on. A lock in the way that has expired is *fenced off*: rewritten
//! as released, with the next epoch, so that a holder that was only paused can't renew it.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::try_join_all;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;

use super::claim::{Clearing, OnClaim, claim_own, is_out_of_reach, refuse_inside_held};
use super::clock::{Clock, SystemClock};
use super::document;
use super::error::StateError;
use super::fence::{Core, DEFAULT_MAX_LOOK_AGE, Fence, FenceError, Lost, Role};
use super::layout;
use super::lock::{Identity, LockState, Tenure};
use crate::store::Store;

/// How long a lock lives without a renewal.
pub const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// Seconds of the longest time to live that may be asked for: a day.
const LONGEST_TTL: u64 = 24 * 60 * 60;

/// The variable that shortens or lengthens it (whole seconds).
pub const TTL_VARIABLE: &str = "SIDECARJOB_LOCK_TTL_SECONDS";

/// The time to live that the environment asks for, or the default.
///
/// # Errors
/// If the variable is set to anything but a number of seconds from 1 to those of a day.
pub fn ttl_from_environment() -> Result<Duration, String> {
    let Some(text) = std::env::var_os(TTL_VARIABLE) else {
        return Ok(DEFAULT_TTL);
    };
    match text.to_str().map(str::parse::<u64>) {
        Some(Ok(seconds)) if (1..=LONGEST_TTL).contains(&seconds) => {
            Ok(Duration::from_secs(seconds))
        }
        _ => Err(format!(
            "{TTL_VARIABLE} is {text:?}: expected a number of seconds from 1 to {LONGEST_TTL}"
        )),
    }
}

/// What is to be locked, by whom.
#[derive(Debug, Clone)]
pub struct LockRequest {
    /// The store of the prefix to lock.
    pub store: Arc<dyn Store>,
    /// Stores of all prefixes above, see [`super::ancestors::open_ancestors`].
    pub ancestors: Vec<Arc<dyn Store>>,
    /// Who asks; `epoch` is ignored.
    pub identity: Identity,
    /// How long the lock lives without a renewal.
    pub ttl: Duration,
    /// How old the last look at the lock may be when something is published.
    pub max_look_age: Duration,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl LockRequest {
    /// A request with the machine's clock and the default times.
    pub fn new(store: Arc<dyn Store>, ancestors: Vec<Arc<dyn Store>>, identity: Identity) -> Self {
        Self {
            store,
            ancestors,
            identity,
            ttl: DEFAULT_TTL,
            max_look_age: DEFAULT_MAX_LOOK_AGE,
            clock: Arc::new(SystemClock::default()),
        }
    }
}

/// Why a prefix could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Another writer holds the prefix.
    #[error(
        "{prefix} is being written by {by}: wait for it to end, stop it, or choose another \
         output prefix"
    )]
    HeldBy {
        /// The prefix.
        prefix: String,
        /// Who holds it.
        by: Box<Tenure>,
    },
    /// Another writer holds a prefix that contains this one.
    #[error(
        "{prefix} is inside {ancestor}, which is being written by {by}: wait for it to end, \
         stop it, or choose an output prefix that is not inside another"
    )]
    HeldByAncestor {
        /// The prefix.
        prefix: String,
        /// The prefix above that is held.
        ancestor: String,
        /// Who holds it.
        by: Box<Tenure>,
    },
    /// Another writer holds a prefix inside this one.
    #[error(
        "{nested} inside {prefix} is being written by {by}: wait for it to end, stop it, or \
         choose an output prefix that does not contain another"
    )]
    NestedLock {
        /// The prefix.
        prefix: String,
        /// The prefix inside that is held.
        nested: String,
        /// Who holds it.
        by: Box<Tenure>,
    },
    /// The claim was lost before it became a lock.
    #[error("{0}")]
    Lost(Box<Lost>),
    /// A lock can't be read or written.
    #[error(transparent)]
    Storage(#[from] StateError),
}

impl From<crate::error::Error> for AcquireError {
    fn from(error: crate::error::Error) -> Self {
        Self::Storage(error.into())
    }
}

impl From<FenceError> for AcquireError {
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::Lost(lost) => Self::Lost(lost),
            FenceError::Unknown(error) => Self::Storage(error),
        }
    }
}

/// The lock of a prefix, renewed in the background until it is released or dropped. Dropped
/// without a release it expires; others on this machine see at once that the process is gone.
#[derive(Debug)]
pub struct WriterLock {
    core: Arc<Core>,
    renewal: AbortHandle,
}

impl WriterLock {
    /// Claims the prefix, lists it for locks inside, and holds it.
    ///
    /// # Errors
    /// If somebody else holds it, a prefix above or one inside; if a lock can't be read or
    /// written. After an error nothing is held.
    pub async fn acquire(request: LockRequest) -> Result<Self, AcquireError> {
        let claim = Self::claim(request).await?;
        if claim.is_resumed {
            return Ok(claim.lock);
        }
        let store = Arc::clone(&claim.lock.core.store);
        let nested = store
            .list_shards()
            .try_fold(Vec::new(), async |mut nested, page| {
                nested.extend(page.nested_locks);
                Ok(nested)
            })
            .await;
        match nested {
            Ok(nested) => claim.confirm(&nested).await,
            Err(error) => {
                claim.give_up().await;
                Err(error.into())
            }
        }
    }

    /// Claims the prefix. For a caller that lists the prefix anyway, and confirms the claim
    /// with the locks that the listing found.
    ///
    /// # Errors
    /// As [`WriterLock::acquire`].
    pub async fn claim(request: LockRequest) -> Result<Claim, AcquireError> {
        refuse_inside_held(&request).await?;
        let seen = claim_own(&request).await?;
        // Nobody can have passed a lock that was held all the time.
        let is_resumed = seen.file.state == LockState::Held;
        let LockRequest {
            store,
            ancestors,
            identity,
            ttl,
            max_look_age,
            clock,
        } = request;
        let core = Arc::new(Core {
            store,
            identity: Identity {
                epoch: Some(seen.file.epoch),
                ..identity
            },
            ttl,
            clock,
            max_look_age,
            role: Role::Holder,
            seen: Mutex::new(seen),
            granted: std::sync::Mutex::default(),
            lost: watch::channel(None).0,
        });
        let renewal = tokio::spawn(keep_renewing(Arc::clone(&core))).abort_handle();
        let claim = Claim {
            lock: Self { core, renewal },
            is_resumed,
        };
        claim.prove().await?;
        if is_resumed {
            return Ok(claim);
        }
        if let Err(error) = claim.look_up(&ancestors).await {
            claim.give_up().await;
            return Err(error);
        }
        Ok(claim)
    }

    /// What is asked before each publication; give clones of it to those who publish.
    pub fn fence(&self) -> Fence {
        Fence::new(Arc::clone(&self.core))
    }

    /// See [`Fence::check`].
    ///
    /// # Errors
    /// If the lock is lost, or if it has expired and can't be renewed.
    pub async fn check(&self) -> Result<(), FenceError> {
        self.fence().check().await
    }

    /// Renews the lock now, beside the renewals in the background.
    ///
    /// # Errors
    /// If the lock is lost or can't be written.
    pub async fn renew(&self) -> Result<(), FenceError> {
        self.core.renew().await
    }

    /// Whether the lock is known to be lost. Looks at nothing.
    pub fn is_lost(&self) -> bool {
        self.fence().is_lost()
    }

    /// Changes to `Some` when the lock is lost (or released).
    pub fn lost(&self) -> watch::Receiver<Option<Lost>> {
        self.fence().lost()
    }

    /// The epoch that is held.
    pub fn epoch(&self) -> u64 {
        self.core.identity.epoch.unwrap_or_default()
    }

    /// Gives the lock up. Fences of it fail from now on. Fine if it is lost already.
    ///
    /// # Errors
    /// If the lock can't be written: it will expire.
    pub async fn release(&self) -> Result<(), StateError> {
        self.renewal.abort();
        self.core.release().await
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// A prefix that is claimed and not yet held: nobody else may claim it, and nothing may be
/// published. Renewed in the background.
#[derive(Debug)]
pub struct Claim {
    lock: WriterLock,
    is_resumed: bool,
}

impl Claim {
    /// Holds the prefix, unless one of the locks inside it, which a listing after the claim
    /// has found ([`crate::ListPage::nested_locks`]), is held.
    ///
    /// # Errors
    /// If a lock inside is held, or the claim was lost. The claim is given up.
    pub async fn confirm(self, nested_locks: &[String]) -> Result<WriterLock, AcquireError> {
        if self.is_resumed {
            return Ok(self.lock);
        }
        match self.look_down(nested_locks).await {
            Ok(()) => Ok(self.lock),
            Err(error) => {
                self.give_up().await;
                Err(error)
            }
        }
    }

    /// Gives the claim up; at worst it expires.
    pub async fn give_up(&self) {
        if let Err(error) = self.lock.release().await {
            tracing::warn!(%error, "the claim to a prefix can't be given up; it will expire");
        }
    }

    /// Gives the claim up, and leaves no file behind where there was none before: the prefix
    /// turned out to be somebody else's.
    pub async fn withdraw(&self) {
        const FIRST_EPOCH: u64 = 1;
        if self.epoch() != FIRST_EPOCH || self.is_resumed {
            return self.give_up().await;
        }
        self.lock.renewal.abort();
        if let Err(error) = self.lock.core.remove().await {
            tracing::debug!(%error, "the file of a claim can't be removed");
            self.give_up().await;
        }
    }

    /// The epoch that is claimed.
    pub fn epoch(&self) -> u64 {
        self.lock.epoch()
    }

    /// Finds out stores on which the claim is worth nothing.
    async fn prove(&self) -> Result<(), AcquireError> {
        let core = &self.lock.core;
        let seen = core.seen.lock().await;
        let payload = document::payload(document::encode(layout::WRITER, &seen.file)?);
        let proven = core.store.prove_conditions(layout::WRITER, &payload).await;
        drop(seen);
        match proven {
            Ok(()) => Ok(()),
            // The claim is gone already.
            Err(error) if error.is_invalid() => Err(error.into()),
            Err(error) => {
                self.give_up().await;
                Err(error.into())
            }
        }
    }

    async fn look_up(&self, ancestors: &[Arc<dyn Store>]) -> Result<(), AcquireError> {
        let core = &self.lock.core;
        try_join_all(ancestors.iter().map(async |ancestor| {
            let request = Clearing {
                core,
                store: &**ancestor,
                key: layout::WRITER,
            };
            match request.clear(OnClaim::Yield).await {
                Ok(Some(by)) => Err(AcquireError::HeldByAncestor {
                    prefix: core.store.uri().to_owned(),
                    ancestor: ancestor.uri().to_owned(),
                    by: Box::new(by),
                }),
                Ok(None) => Ok(()),
                Err(error) if is_out_of_reach(&error) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }))
        .await?;
        Ok(())
    }

    async fn look_down(&self, nested_locks: &[String]) -> Result<(), AcquireError> {
        let core = &self.lock.core;
        for key in nested_locks {
            let request = Clearing {
                core,
                store: &*core.store,
                key,
            };
            if let Some(by) = request.clear(OnClaim::Wait).await? {
                let nested = key.strip_suffix(layout::WRITER).unwrap_or(key);
                return Err(AcquireError::NestedLock {
                    prefix: core.store.uri().to_owned(),
                    nested: format!("{}{nested}", core.store.uri()),
                    by: Box::new(by),
                });
            }
        }
        core.hold().await?;
        Ok(())
    }
}

/// Renews a lock for as long as it is ours; more often while that fails.
async fn keep_renewing(core: Arc<Core>) {
    let regular = core.ttl / 3;
    let mut pause = regular;
    loop {
        tokio::time::sleep(pause).await;
        pause = match core.renew().await {
            Ok(()) => regular,
            Err(FenceError::Unknown(error)) => {
                tracing::warn!(%error, "the writer lock can't be renewed; trying again");
                regular / 4
            }
            Err(FenceError::Lost(lost)) => {
                tracing::error!(%lost, "the writer lock is lost");
                return;
            }
        };
    }
}
