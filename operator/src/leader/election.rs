//! Taking the Lease, keeping it, giving it up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use storage::state::clock::{Clock, Moment, SystemClock};

use super::lease::{LeaseRecord, Seen, Standing, evaluate_lease};

/// How long the Lease lives without a renewal.
const DURATION: Duration = Duration::from_secs(15);

/// Between two renewals, or two looks at somebody else's.
const INTERVAL: Duration = Duration::from_secs(4);

/// Longest wait for one answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);

/// How long after its last renewal a holder counts itself as one. Well below [`DURATION`]:
/// what it started before has ended when somebody else begins.
const RENEW_LIMIT: Duration = Duration::from_secs(10);

/// Why a process is leader no more.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// Somebody else took the Lease.
    #[error("the lease {lease} was taken over by {by}")]
    TakenOver {
        /// Its name.
        lease: String,
        /// Who has it.
        by: String,
    },
    /// It could not be renewed in time.
    #[error("the lease {lease} could not be renewed for {seconds} s: {reason}")]
    NotRenewed {
        /// Its name.
        lease: String,
        /// For how long.
        seconds: u64,
        /// The last failure in words.
        reason: String,
    },
}

/// Whether this process is at work.
#[derive(Clone, Debug)]
pub struct Leadership {
    clock: SystemClock,
    /// When the request of the last renewal that succeeded was sent; `None`: not the leader.
    renewed: Arc<Mutex<Option<Moment>>>,
}

impl Leadership {
    /// Not the leader yet.
    pub fn none() -> Self {
        Self {
            clock: SystemClock::default(),
            renewed: Arc::default(),
        }
    }

    /// Whether this process holds the Lease for certain, now.
    pub fn is_leader(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.is_some_and(|renewed| self.clock.now().since(&renewed) < RENEW_LIMIT)
    }

    fn set(&self, renewed: Option<Moment>) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
    }
}

/// One process's part in the election.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    name: String,
    me: String,
    leadership: Leadership,
    clock: SystemClock,
    seen: Option<Seen>,
}

impl Election {
    /// `me` has to differ between any two processes.
    pub fn new(client: Client, namespace: &str, name: &str, me: &str) -> Self {
        let leadership = Leadership::none();
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            me: me.to_owned(),
            clock: leadership.clock,
            leadership,
            seen: None,
        }
    }

    /// Whether this process is at work; a handle that follows.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until the Lease is held.
    pub async fn win(&mut self) {
        let mut last_words = String::new();
        loop {
            let words = match self.round().await {
                Ok(Standing::Mine) => return,
                Ok(Standing::Held { by }) => format!("standing by: {by} is the leader"),
                Ok(Standing::Absent | Standing::Free) => "another was quicker".to_owned(),
                Err(reason) => format!("can't ask for the lease: {reason}"),
            };
            if words != last_words {
                tracing::info!(lease = self.name, "{words}");
                last_words = words;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Keeps the Lease until it is lost.
    pub async fn keep(&mut self) -> ElectionError {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let reason = match self.round().await {
                Ok(Standing::Mine) => continue,
                Ok(Standing::Held { by }) => {
                    self.leadership.set(None);
                    return ElectionError::TakenOver {
                        lease: self.name.clone(),
                        by,
                    };
                }
                Ok(Standing::Absent | Standing::Free) => "it changed meanwhile".to_owned(),
                Err(reason) => reason,
            };
            tracing::warn!(lease = self.name, "can't renew the lease: {reason}");
            if !self.leadership.is_leader() {
                self.leadership.set(None);
                return ElectionError::NotRenewed {
                    lease: self.name.clone(),
                    seconds: RENEW_LIMIT.as_secs(),
                    reason,
                };
            }
        }
    }

    /// Gives the Lease up, so that another replica need not wait for its expiry.
    pub async fn release(&mut self) {
        if !self.leadership.is_leader() {
            return;
        }
        self.leadership.set(None);
        let released = tokio::time::timeout(CALL_TIMEOUT, async {
            let mut lease = self.leases.get(&self.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.me) {
                return Ok(());
            }
            spec.holder_identity = None;
            let parameters = PostParams::default();
            self.leases.replace(&self.name, &parameters, &lease).await?;
            Ok::<(), kube::Error>(())
        });
        match released.await {
            Ok(Ok(())) => tracing::info!(lease = self.name, "gave up the lease"),
            Ok(Err(error)) => tracing::warn!(lease = self.name, %error, "can't give up the lease"),
            Err(_) => tracing::warn!(lease = self.name, "no answer to giving up the lease"),
        }
    }

    /// One look, and what follows from it. `Mine` once it is held and renewed.
    async fn round(&mut self) -> Result<Standing, String> {
        let sent = self.clock.now();
        match tokio::time::timeout(CALL_TIMEOUT, self.attempt()).await {
            Ok(Ok(standing)) => {
                if standing == Standing::Mine {
                    self.leadership.set(Some(sent));
                }
                Ok(standing)
            }
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => Ok(Standing::Free),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", CALL_TIMEOUT.as_secs())),
        }
    }

    async fn attempt(&mut self) -> Result<Standing, kube::Error> {
        let lease = self.leases.get_opt(&self.name).await?;
        let now = self.clock.now();
        self.seen = lease
            .as_ref()
            .map(|lease| Seen::update(self.seen.take(), record(lease), now));
        let standing = evaluate_lease(now, self.seen.as_ref(), &self.me);
        let written = match (&standing, lease) {
            (Standing::Held { .. }, _) => return Ok(standing),
            (_, None) => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(self.spec(None, 0)),
                };
                self.leases.create(&PostParams::default(), &lease).await?
            }
            (Standing::Mine, Some(mut lease)) => {
                let acquired = lease
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.acquire_time.clone());
                let transitions = record(&lease).transitions;
                lease.spec = Some(self.spec(acquired, transitions));
                self.replace(&lease).await?
            }
            (_, Some(mut lease)) => {
                let transitions = record(&lease).transitions.saturating_add(1);
                lease.spec = Some(self.spec(None, transitions));
                self.replace(&lease).await?
            }
        };
        self.seen = Some(Seen::update(None, record(&written), now));
        Ok(Standing::Mine)
    }

    /// Replaces the version that was read: somebody else's write in between is a conflict.
    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let parameters = PostParams::default();
        self.leases.replace(&self.name, &parameters, lease).await
    }

    fn spec(&self, acquired: Option<MicroTime>, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    LeaseRecord {
        holder: spec.holder_identity,
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        transitions: spec.lease_transitions.unwrap_or_default(),
        version: lease.resource_version().unwrap_or_default(),
    }
}
