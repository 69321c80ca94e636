//! The one place that reads: what a decision about one SidecarJob rests on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::SidecarJob;
use kube::ResourceExt;

use crate::identity::{Identities, IdentityError};
use crate::memory::{Memory, Subject};
use crate::model::{Observed, Settings};
use crate::runner::Runners;
use crate::watch::{Cache, KeptJob, KeptPod, ObjectKey, sum_pods};

/// What the watches have told so far.
#[derive(Debug, Default)]
pub struct Caches {
    /// SidecarJobs; each is its own owner.
    pub sidecar_jobs: Cache<SidecarJob>,
    /// Jobs that SidecarJobs control.
    pub jobs: Cache<KeptJob>,
    /// Pods of those that have not ended.
    pub pods: Cache<KeptPod>,
    /// Objects that can't be read, by kind and name.
    pub invalid: Mutex<HashMap<(&'static str, ObjectKey), Unreadable>>,
}

/// An object that can't be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// Why.
    pub error: String,
    /// Its `metadata.uid`.
    pub uid: Option<String>,
    /// Whether people were told.
    pub is_told: bool,
}

impl Caches {
    /// The name of the SidecarJob of this uid.
    pub fn key_of(&self, uid: &str) -> Option<ObjectKey> {
        let owned = self.sidecar_jobs.owned(uid).into_iter().next();
        owned.map(|(key, _)| key)
    }

    /// Whether, and why, the SidecarJob can't be read as it is now. It is taken for told from
    /// then on.
    fn unreadable(&self, key: &ObjectKey) -> Option<Unreadable> {
        let mut invalid = self.invalid.lock().unwrap_or_else(PoisonError::into_inner);
        let known = invalid.get_mut(&("SidecarJob", key.clone()))?;
        let before = known.clone();
        known.is_told = true;
        Some(before)
    }
}

/// What a look at an object gave.
#[derive(Debug)]
pub enum Look {
    /// There is no such object.
    Gone,
    /// There is one that can't be read.
    Unreadable(Unreadable),
    /// The watches have not yet told of our own last writes.
    Behind,
    /// The object and all about it. With an error its prefixes can't be reached just now:
    /// nothing can be done but saying so.
    Seen(Box<Observed>, Option<IdentityError>),
}

/// Looks at objects.
#[derive(Debug)]
pub struct Observer {
    /// What the watches have told.
    pub caches: Arc<Caches>,
    /// The background work.
    pub runners: Arc<Runners>,
    /// As whom prefixes are reached.
    pub identities: Arc<Identities>,
    /// What is remembered.
    pub memory: Arc<Memory>,
    /// How the operator was installed.
    pub settings: Arc<Settings>,
}

impl Observer {
    /// Looks at one object.
    pub async fn observe(&self, key: &ObjectKey) -> Look {
        if let Some(unreadable) = self.caches.unreadable(key) {
            return Look::Unreadable(unreadable);
        }
        let Some(object) = self.caches.sidecar_jobs.get(key) else {
            return Look::Gone;
        };
        let uid = object.uid().unwrap_or_default();
        let jobs: Vec<_> = self.caches.jobs.owned(&uid);
        let is_behind = self.memory.is_behind(&uid, |subject| match subject {
            Subject::Object => object.resource_version(),
            Subject::Job(name) => {
                let job = jobs.iter().find(|(key, _)| key.name == *name);
                job.map(|(_, job)| job.observed.resource_version.clone())
            }
        });
        if is_behind {
            return Look::Behind;
        }
        let (refusal, error) = if needs_identity(&object) {
            match self.identities.stores(&object, output(&object)).await {
                Ok(_) => (None, None),
                Err(IdentityError::Refused(refusal)) => (Some(refusal), None),
                Err(error) => (None, Some(error)),
            }
        } else {
            (None, None)
        };
        let pods = self.caches.pods.owned(&uid);
        let observed = Observed {
            jobs: jobs.iter().map(|(_, job)| job.observed.clone()).collect(),
            pods: sum_pods(pods.iter().map(|(_, pod)| pod.as_ref())),
            run: self.runners.facts(&uid),
            refusal,
            trouble: self.memory.trouble(&uid),
            live_written_ms: self.memory.live_written_ms(&uid),
            random: rand::random(),
            settings: Arc::clone(&self.settings),
            object,
        };
        Look::Seen(Box::new(observed), error)
    }
}

/// Whether the object has anything to do in the store. A run that is over needs neither its
/// Secret nor its bucket.
fn needs_identity(object: &SidecarJob) -> bool {
    let run = object
        .status
        .as_ref()
        .and_then(|status| status.run.as_ref());
    let has_ended = run.is_some_and(|run| run.finished_at.is_some());
    object.metadata.deletion_timestamp.is_none() && !has_ended
}

/// Where the output goes, if that is known yet.
fn output(object: &SidecarJob) -> Option<&str> {
    let chosen = object
        .status
        .as_ref()
        .and_then(|status| status.output.as_deref());
    chosen.or(object.spec.output.prefix.as_deref())
}
