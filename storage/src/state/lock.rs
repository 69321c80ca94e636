//! The writer lock as a state machine: what a lock file means to somebody at some time, and
//! what it is rewritten to. Pure; [`super::writer`] has the effects.
//!
//! The file is a register that is only ever changed by compare-and-swap. Its epoch goes up
//! with every acquisition, also with one after a release, for which a released file stays
//! where it is: an epoch has one holder, for good, and a worker that carries an epoch can tell
//! whether its run still holds the prefix.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::RunId;
use super::clock::to_milliseconds;
use super::document::{Document, FORMAT_VERSION};
use super::limits;

/// The most that a lock may outlive its expiry for clocks that disagree.
const MAX_GRACE: Duration = Duration::from_secs(15);

/// Who holds, or wants, a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// A name that people recognise: `shard-worker`, or `namespace/name` of a SidecarJob.
    pub name: String,
    /// What tells this holder from any other, and makes it the same one after a restart.
    /// Random for a process; the uid of the SidecarJob for the operator.
    pub instance: String,
    /// The machine or pod.
    pub host: String,
    /// The process on that host.
    pub pid: u32,
    /// What tells the process from another one with its number; absent where the holder may
    /// outlive its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessMark>,
}

/// Identifies a process across boots, containers and reuse of its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMark {
    /// The kernel's boot id.
    pub boot: String,
    /// The PID namespace in which the number counts.
    pub namespace: String,
    /// When the process began, in clock ticks since boot.
    pub started: u64,
}

/// Somebody who looks at a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub holder: Holder,
    /// For which run.
    pub run: RunId,
    /// With which pipeline.
    pub digest: String,
    /// The epoch that they hold, or believe to hold.
    pub epoch: Option<u64>,
}

/// How far the holder of a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    /// Has the file, but hasn't yet made sure that nobody holds a prefix above or below.
    /// Writes nothing. To others it counts as held.
    Claiming,
    /// Writes.
    Held,
    /// Nobody holds it. The file stays, so that epochs go on from here.
    Released,
}

/// `writer.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockFile {
    /// Version of the format.
    pub version: u32,
    /// How far the holder is.
    pub state: LockState,
    /// Who holds it, or held it last.
    pub holder: Holder,
    /// For which run.
    pub run: RunId,
    /// Digest of the pipeline of that run.
    pub digest: String,
    /// Goes up by one with each acquisition.
    pub epoch: u64,
    /// When this epoch began.
    #[serde(with = "time::serde::rfc3339")]
    pub acquired_at: OffsetDateTime,
    /// When the holder last said that it is alive.
    #[serde(with = "time::serde::rfc3339")]
    pub renewed_at: OffsetDateTime,
    /// When others may take over, give or take a grace for clocks that disagree.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

impl Document for LockFile {
    const WHAT: &'static str = "writer lock";
    const LIMIT: u64 = limits::LOCK;
}

/// Who holds a prefix, since and until when: what messages name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// Who.
    pub holder: Holder,
    /// For which run.
    pub run: RunId,
    /// The epoch.
    pub epoch: u64,
    /// Until when, unless it is renewed.
    pub expires_at: OffsetDateTime,
}

impl fmt::Display for Tenure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            holder,
            run,
            epoch,
            expires_at,
        } = self;
        let until = expires_at.format(&time::format_description::well_known::Rfc3339);
        write!(
            formatter,
            "{} on {} (pid {}), run {run}, epoch {epoch}, until {}",
            holder.name,
            holder.host,
            holder.pid,
            until.unwrap_or_default()
        )
    }
}

impl From<&LockFile> for Tenure {
    fn from(file: &LockFile) -> Self {
        Self {
            holder: file.holder.clone(),
            run: file.run.clone(),
            epoch: file.epoch,
            expires_at: file.expires_at,
        }
    }
}

/// What a lock file means to somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody holds the prefix.
    Free,
    /// I hold it; or I did before a restart, and nobody has taken it since.
    Mine,
    /// Somebody else holds it.
    Held(Tenure),
    /// Somebody else held it and hasn't renewed it in time.
    Expired(Tenure),
    /// I held it, and it is no longer mine. `None`: the file is gone or released.
    TakenOver(Option<Tenure>),
}

/// What `file` means to `me` at `now`.
pub fn standing(file: Option<&LockFile>, me: &Identity, now: OffsetDateTime) -> Standing {
    let live = file.filter(|file| file.state != LockState::Released);
    if let Some(epoch) = me.epoch {
        return match live {
            Some(file) if is_same(file, me) && file.epoch == epoch => Standing::Mine,
            other => Standing::TakenOver(other.map(Tenure::from)),
        };
    }
    match live {
        None => Standing::Free,
        Some(file) if is_same(file, me) => Standing::Mine,
        Some(file) if has_expired(file, now) => Standing::Expired(file.into()),
        Some(file) => Standing::Held(file.into()),
    }
}

fn is_same(file: &LockFile, me: &Identity) -> bool {
    file.holder.instance == me.holder.instance && file.run == me.run
}

/// Whether others may take `file` over at `now`.
pub fn has_expired(file: &LockFile, now: OffsetDateTime) -> bool {
    now > after(file.expires_at, grace(file))
}

/// A time some while later: the last that there is, where a file names the year 9999.
fn after(time: OffsetDateTime, delay: Duration) -> OffsetDateTime {
    time.saturating_add(time::Duration::try_from(delay).unwrap_or(time::Duration::MAX))
}

/// How long the holder of `file` has between renewals before it expires.
pub fn time_to_live(file: &LockFile) -> Duration {
    Duration::try_from(file.expires_at - file.renewed_at).unwrap_or_default()
}

/// How long after its expiry a lock still counts, for clocks that disagree.
pub fn grace(file: &LockFile) -> Duration {
    (time_to_live(file) / 4).min(MAX_GRACE)
}

/// The file by which `me` claims what is free or expired, or claims again what is theirs.
/// The epoch goes up, unless it is `me` who holds `previous`.
pub fn claim(
    previous: Option<&LockFile>,
    me: &Identity,
    now: OffsetDateTime,
    ttl: Duration,
) -> LockFile {
    let now = to_milliseconds(now);
    let again = previous.filter(|file| file.state != LockState::Released && is_same(file, me));
    let (epoch, acquired_at) = match again {
        Some(file) => (file.epoch, file.acquired_at),
        None => (previous.map_or(0, |file| file.epoch).saturating_add(1), now),
    };
    LockFile {
        version: FORMAT_VERSION,
        state: LockState::Claiming,
        holder: me.holder.clone(),
        run: me.run.clone(),
        digest: me.digest.clone(),
        epoch,
        acquired_at,
        renewed_at: now,
        expires_at: after(now, ttl),
    }
}

/// `file` after its holder said that it is alive.
pub fn renew(file: &LockFile, now: OffsetDateTime, ttl: Duration) -> LockFile {
    let now = to_milliseconds(now);
    LockFile {
        renewed_at: now,
        expires_at: after(now, ttl),
        ..file.clone()
    }
}

/// `file` after its holder made sure that nobody holds a prefix above or below.
pub fn hold(file: &LockFile, now: OffsetDateTime, ttl: Duration) -> LockFile {
    LockFile {
        state: LockState::Held,
        ..renew(file, now, ttl)
    }
}

/// `file` after its holder gave it up.
pub fn release(file: &LockFile, now: OffsetDateTime) -> LockFile {
    let now = to_milliseconds(now);
    LockFile {
        state: LockState::Released,
        renewed_at: now,
        expires_at: now,
        ..file.clone()
    }
}

/// An expired lock of a prefix above or below mine, after I put it out of the way. With an
/// epoch that its holder doesn't have, a holder that was only paused sees that it lost.
pub fn fence_off(file: &LockFile, me: &Identity, now: OffsetDateTime) -> LockFile {
    release(&claim(Some(file), me, now, Duration::ZERO), now)
}

#[cfg(test)]
mod tests;
