//! The steps of claiming a prefix: looking at locks in the way, and writing one's own.

use std::time::Duration;

use futures::future::try_join_all;
use time::OffsetDateTime;

use super::clock::{Clock, Moment};
use super::document;
use super::error::StateError;
use super::fence::{Core, Lost, Seen};
use super::identity::is_gone;
use super::layout;
use super::lock::{self, Identity, LockFile, LockState, Standing, Tenure};
use super::writer::{AcquireError, DEFAULT_TTL, LockRequest};
use crate::store::{ETag, PutCondition, Store};

/// A lock that expired this long ago is taken over without watching it for a renewal: no two
/// clocks disagree that much.
const LONG_EXPIRED: Duration = Duration::from_secs(600);

/// How often a lost race for the file is followed by another look at it.
const CLAIM_ATTEMPTS: usize = 20;

/// How long to wait between looks at a claim that is about to be decided.
const CLAIM_POLL: Duration = Duration::from_millis(100);

/// Whether a prefix above can't be looked at at all, so that nobody like us writes there.
pub(crate) fn is_out_of_reach(error: &StateError) -> bool {
    let out_of_reach = matches!(error, StateError::Storage(storage) if storage.is_refused());
    if out_of_reach {
        tracing::debug!(%error, "a prefix above can't be looked at for a writer lock");
    }
    out_of_reach
}

/// Looks at the prefixes above before anything is written.
pub(crate) async fn refuse_inside_held(request: &LockRequest) -> Result<(), AcquireError> {
    let stranger = Identity {
        epoch: None,
        ..request.identity.clone()
    };
    try_join_all(request.ancestors.iter().map(async |ancestor| {
        let found = match document::read::<LockFile>(&**ancestor, layout::WRITER).await {
            Ok(found) => found,
            Err(error) if is_out_of_reach(&error) => return Ok(()),
            Err(error) => return Err(AcquireError::from(error)),
        };
        let file = found.as_ref().map(|(_, file)| file);
        match lock::standing(file, &stranger, request.clock.now().wall) {
            Standing::Held(by) if !is_gone(&by.holder) => Err(AcquireError::HeldByAncestor {
                prefix: request.store.uri().to_owned(),
                ancestor: ancestor.uri().to_owned(),
                by: Box::new(by),
            }),
            _ => Ok(()),
        }
    }))
    .await?;
    Ok(())
}

/// Writes the own lock file, if it is free, ours or to be taken over.
pub(crate) async fn claim_own(request: &LockRequest) -> Result<Seen, AcquireError> {
    let store = &*request.store;
    let me = Identity {
        epoch: None,
        ..request.identity.clone()
    };
    let mut last_holder = None;
    for _ in 0..CLAIM_ATTEMPTS {
        let found = document::read::<LockFile>(store, layout::WRITER).await?;
        let file = found.as_ref().map(|(_, file)| file);
        let etag = found.as_ref().map(|(meta, _)| &meta.etag);
        match lock::standing(file, &me, request.clock.now().wall) {
            Standing::Free | Standing::Mine | Standing::TakenOver(_) => {}
            Standing::Held(by) if is_gone(&by.holder) => {}
            Standing::Held(by) => {
                let prefix = store.uri().to_owned();
                return Err(AcquireError::HeldBy {
                    prefix,
                    by: Box::new(by),
                });
            }
            Standing::Expired(by) => {
                last_holder = Some(by);
                if let (Some(file), Some(etag)) = (file, etag) {
                    match watch(store, layout::WRITER, file, etag, &*request.clock).await? {
                        Watched::Stale => {}
                        Watched::Changed => continue,
                        Watched::Renewed(by) => {
                            return Err(AcquireError::HeldBy {
                                prefix: store.uri().to_owned(),
                                by: Box::new(by),
                            });
                        }
                    }
                }
            }
        }
        let started = request.clock.now();
        let claimed = claim_or_resume(file, &me, started, request.ttl);
        let condition = etag
            .cloned()
            .map_or(PutCondition::Create, PutCondition::Replace);
        let bytes = document::encode(layout::WRITER, &claimed)?;
        match document::put(store, layout::WRITER, bytes, condition).await {
            Ok(published) => {
                return Ok(Seen {
                    file: claimed,
                    etag: published.etag,
                    looked: started,
                    renewed: started,
                });
            }
            Err(error) if document::is_conflict(&error) => {
                last_holder = file.map(Tenure::from);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let prefix = store.uri().to_owned();
    Err(match last_holder {
        Some(by) => AcquireError::HeldBy {
            prefix,
            by: Box::new(by),
        },
        None => AcquireError::Lost(Box::new(Lost { prefix, by: None })),
    })
}

/// A lock that we hold from before a restart goes on as it is: nobody could pass it.
fn claim_or_resume(file: Option<&LockFile>, me: &Identity, now: Moment, ttl: Duration) -> LockFile {
    let claimed = lock::claim(file, me, now.wall, ttl);
    match file {
        Some(file) if file.state == LockState::Held && file.epoch == claimed.epoch => {
            lock::hold(&claimed, now.wall, ttl)
        }
        _ => claimed,
    }
}

/// What became of a lock that has expired by our clock, while it was watched.
enum Watched {
    /// Nothing: its holder is gone.
    Stale,
    /// Its holder has renewed it, so that it holds it: only its clock is behind ours.
    Renewed(Tenure),
    /// Somebody else has it, or nobody.
    Changed,
}

/// Watches a lock that has expired by our clock. A live holder renews at a third of the time to
/// live, so half of it tells them from one whose clock is merely behind ours.
async fn watch(
    store: &dyn Store,
    key: &str,
    file: &LockFile,
    etag: &ETag,
    clock: &dyn Clock,
) -> Result<Watched, StateError> {
    let expired_for = Duration::try_from(clock.now().wall - file.expires_at).unwrap_or_default();
    if is_gone(&file.holder) || expired_for > LONG_EXPIRED {
        return Ok(Watched::Stale);
    }
    let pause = lock::time_to_live(file).min(DEFAULT_TTL) / 2;
    let (lock, by) = (document::uri(store, key), Tenure::from(file));
    tracing::info!(
        "{lock} of {by} has expired; watching it for {:.1} s, in case its holder lives",
        pause.as_secs_f64()
    );
    tokio::time::sleep(pause).await;
    let found = document::read::<LockFile>(store, key).await?;
    let Some((meta, now)) = found else {
        return Ok(Watched::Changed);
    };
    if meta.etag == *etag {
        return Ok(Watched::Stale);
    }
    let is_the_same = now.state != LockState::Released
        && now.epoch == file.epoch
        && now.run == file.run
        && now.holder.instance == file.holder.instance;
    if !is_the_same {
        return Ok(Watched::Changed);
    }
    let behind = Duration::try_from(clock.now().wall - now.renewed_at).unwrap_or_default();
    tracing::warn!(
        "{lock} was renewed by {by} while it was watched: the clock of its machine is some {} s behind this one's; set the clocks",
        behind.as_secs()
    );
    Ok(Watched::Renewed(Tenure::from(&now)))
}

/// What to do about a claim in the way that isn't decided yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnClaim {
    /// Count it as held.
    Yield,
    /// Wait until its owner holds it or gives it up.
    Wait,
}

/// A lock of another prefix that may be in the way of a claim.
pub(crate) struct Clearing<'a> {
    pub(crate) core: &'a Core,
    pub(crate) store: &'a dyn Store,
    pub(crate) key: &'a str,
}

impl Clearing<'_> {
    /// `None` once the lock isn't in the way (any more), or else who holds it.
    pub(crate) async fn clear(&self, on_claim: OnClaim) -> Result<Option<Tenure>, StateError> {
        let Self { core, store, key } = *self;
        let stranger = Identity {
            epoch: None,
            ..core.identity.clone()
        };
        let first_look = core.clock.now();
        let mut changes = 0;
        loop {
            let Some((meta, file)) = document::read::<LockFile>(store, key).await? else {
                return Ok(None);
            };
            let now = core.clock.now();
            match lock::standing(Some(&file), &stranger, now.wall) {
                Standing::Free | Standing::TakenOver(_) => return Ok(None),
                Standing::Held(by) if is_gone(&by.holder) => {}
                Standing::Mine => return Ok(Some(Tenure::from(&file))),
                Standing::Held(by) => {
                    let is_undecided = file.state == LockState::Claiming;
                    let patience = lock::time_to_live(&file) * 2;
                    if on_claim == OnClaim::Yield
                        || !is_undecided
                        || now.since(&first_look) > patience
                    {
                        return Ok(Some(by));
                    }
                    tokio::time::sleep(CLAIM_POLL).await;
                    continue;
                }
                Standing::Expired(by) => {
                    match watch(store, key, &file, &meta.etag, &*core.clock).await? {
                        Watched::Stale => {}
                        Watched::Renewed(by) => return Ok(Some(by)),
                        Watched::Changed => {
                            changes += 1;
                            if changes == CLAIM_ATTEMPTS {
                                return Ok(Some(by));
                            }
                            continue;
                        }
                    }
                }
            }
            if self.fence_off(&file, meta.etag, now.wall).await? {
                return Ok(None);
            }
        }
    }

    /// Rewrites a stale lock; `false` if it has changed meanwhile.
    async fn fence_off(
        &self,
        file: &LockFile,
        etag: ETag,
        now: OffsetDateTime,
    ) -> Result<bool, StateError> {
        let fenced = lock::fence_off(file, &self.core.identity, now);
        let bytes = document::encode(self.key, &fenced)?;
        match document::put(self.store, self.key, bytes, PutCondition::Replace(etag)).await {
            Ok(_) => Ok(true),
            Err(error) if document::is_conflict(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
