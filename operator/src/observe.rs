//! The one place that reads: what a decision about one SidecarJob rests on.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crds::SidecarJob;
use kube::ResourceExt;
use rules::model::{Asked, Observed, ObservedJob, RunFacts, Settings};

use crate::identity::{Identities, IdentityError};
use crate::inquiry::Inquiry;
use crate::memory::{Memory, Subject};
use crate::namespaces::Namespaces;
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
        self.sidecar_jobs.keys(uid).into_iter().next()
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
    /// The object and all about it that the watches have told.
    Seen(Box<Observed>),
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
    /// Which namespaces are being deleted.
    pub namespaces: Namespaces,
    /// What no watch tells.
    pub inquiry: Arc<Inquiry>,
    /// What is remembered.
    pub memory: Arc<Memory>,
    /// How the operator was installed.
    pub settings: Arc<Settings>,
}

impl Observer {
    /// Looks at one object. Nothing is waited for.
    pub fn observe(&self, key: &ObjectKey) -> Look {
        if let Some(unreadable) = self.caches.unreadable(key) {
            return Look::Unreadable(unreadable);
        }
        let Some(object) = self.caches.sidecar_jobs.get(key) else {
            return Look::Gone;
        };
        let uid = object.uid().unwrap_or_default();
        let jobs: Vec<_> = self.caches.jobs.owned(&key.namespace, &uid);
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
        let pods = self.caches.pods.owned(&key.namespace, &uid);
        let jobs: Vec<ObservedJob> = jobs.iter().map(|(_, job)| job.observed.clone()).collect();
        let run = self.runners.facts(&uid);
        let silent = run.as_deref().map(silent_work).unwrap_or_default();
        let observed = Observed {
            jobs,
            pods: sum_pods(pods.iter().map(|(key, pod)| (key, pod.as_ref())), &silent),
            run,
            asked: Asked::default(),
            refusal: None,
            has_identity: false,
            is_namespace_going: false,
            trouble: self.memory.trouble(&uid),
            live_written_ms: self.memory.live_written_ms(&uid),
            random: rand::random(),
            settings: self.settings(),
            object,
        };
        Look::Seen(Box::new(observed))
    }

    /// Asks for what the watches don't tell, which may take a while: why Jobs stand still, whether
    /// the namespace goes, and whether the object's prefixes can be reached.
    ///
    /// # Errors
    /// If they can't be reached just now.
    pub async fn ask(&self, observed: &mut Observed) -> Result<(), IdentityError> {
        let object = Arc::clone(&observed.object);
        let uid = object.uid().unwrap_or_default();
        let namespace = object.namespace().unwrap_or_default();
        observed.is_namespace_going =
            observed.jobs.iter().any(loses_pods) && self.namespaces.is_going(&namespace).await;
        observed.asked = self.inquiry.ask(&uid, &namespace, &observed.jobs).await;
        if !needs_identity(&object) {
            return Ok(());
        }
        let stores = self.identities.stores(&object, output(&object)).await;
        observed.has_identity = self.identities.is_jobs_own(&uid);
        match stores {
            Ok(_) => Ok(()),
            Err(IdentityError::Refused(refusal)) => {
                observed.refusal = Some(refusal);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Observer {
    /// As the operator was installed; numbers are written less often where there are many objects.
    fn settings(&self) -> Arc<Settings> {
        let installed = &self.settings;
        let seconds = self
            .runners
            .budget()
            .status_seconds(installed.live_status_seconds);
        if seconds == installed.live_status_seconds {
            return Arc::clone(installed);
        }
        Arc::new(Settings {
            live_status_seconds: seconds,
            ..Settings::clone(installed)
        })
    }
}

/// Whether pods of a Job go without the operator's doing: then it is worth a look whether the
/// whole namespace does. There the Job controller is refused the pods in whose place it keeps the
/// ended ones, so that these, and the namespace, would stay for good.
fn loses_pods(job: &ObservedJob) -> bool {
    let is_ending_some = job.is_live() && !job.is_suspended && job.terminating > 0;
    is_ending_some || job.lacks_pods()
}

/// Batch, attempt and index of the items of which nothing is heard.
fn silent_work(facts: &RunFacts) -> HashSet<(u32, u32, u32)> {
    let mut work = HashSet::new();
    if facts.silent.is_empty() {
        return work;
    }
    let silent: HashSet<u64> = facts.silent.iter().copied().collect();
    for batch in &facts.batches {
        let Some(last) = batch.attempts.last() else {
            continue;
        };
        let items = last.items.iter().zip(0..);
        let quiet = items.filter(|((first, _), _)| silent.contains(first));
        work.extend(quiet.map(|(_, index)| (batch.batch, last.attempt, index)));
    }
    work
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
