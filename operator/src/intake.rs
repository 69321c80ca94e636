//! What the watches tell goes into the caches, and whoever is concerned into the queue.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crds::SidecarJob;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::error_boundary::InvalidObject;

use crate::identity::Identities;
use crate::inquiry::Inquiry;
use crate::memory::Memory;
use crate::observe::{Caches, Unreadable};
use crate::queue::Queue;
use crate::runner::Runners;
use crate::watch::{KeptJob, KeptPod, ObjectKey, Sink, WorkerPod, keep_job, keep_pod};

/// After an event so long is waited for others of the same object.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// The annotation in which `kubectl apply` keeps a second copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where the watches' news goes.
#[derive(Clone, Debug)]
pub struct Intake {
    /// What the watches have told.
    pub caches: Arc<Caches>,
    /// Which objects have to be looked at.
    pub queue: Arc<Queue<ObjectKey>>,
    /// The background work.
    pub runners: Arc<Runners>,
    /// As whom prefixes are reached.
    pub identities: Arc<Identities>,
    /// What no watch tells.
    pub inquiry: Arc<Inquiry>,
    /// What is remembered.
    pub memory: Arc<Memory>,
}

impl Intake {
    /// The object is gone: nothing is done or remembered for it any more.
    pub fn forget(&self, uid: &str) {
        // Its pods may go on for a while: the lock is kept for as long.
        let (caches, owner) = (Arc::clone(&self.caches), uid.to_owned());
        let are_gone = move || {
            let (jobs, pods) = (caches.jobs.keys(&owner), caches.pods.keys(&owner));
            jobs.is_empty() && pods.is_empty()
        };
        self.runners.forget_after(uid, are_gone);
        self.identities.forget(uid);
        self.inquiry.forget(uid);
        self.memory.forget(uid);
    }

    /// The background work of an object has news.
    pub fn wake(&self, uid: &str) {
        self.memory.hear_news(uid);
        if let Some(key) = self.caches.key_of(uid) {
            self.look_at(key);
        }
    }

    fn look_at(&self, key: ObjectKey) {
        self.queue.add(key, Instant::now() + DEBOUNCE);
    }

    /// News of something in `namespace` that names its owner; an owner elsewhere is forged.
    fn look_at_owner(&self, namespace: &str, uid: &str) {
        let owner = self.caches.key_of(uid);
        if let Some(key) = owner.filter(|key| key.namespace == namespace) {
            self.look_at(key);
        }
    }

    fn note_invalid(&self, kind: &'static str, invalid: InvalidObject) {
        let InvalidObject { error, metadata } = invalid;
        let key = ObjectKey::of(&metadata);
        tracing::warn!(kind, object = %key, error, "an object can't be read");
        let caches = &self.caches;
        let mut known = caches
            .invalid
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let same = known.get(&(kind, key.clone()));
        let is_told = same.is_some_and(|known| known.error == error && known.is_told);
        let unreadable = Unreadable {
            error,
            uid: metadata.uid,
            is_told,
        };
        known.insert((kind, key), unreadable);
    }

    fn note_valid(&self, kind: &'static str, key: &ObjectKey) {
        let mut known = self
            .caches
            .invalid
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.remove(&(kind, key.clone()));
    }

    fn keep_valid(&self, kind: &'static str, namespace: Option<&str>, keys: &HashSet<ObjectKey>) {
        let mut known = self
            .caches
            .invalid
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.retain(|(known_kind, key), _| {
            *known_kind != kind
                || namespace.is_some_and(|namespace| key.namespace != namespace)
                || keys.contains(key)
        });
    }
}

/// SidecarJobs.
#[derive(Clone, Debug)]
pub struct SidecarJobIntake {
    /// Where news goes.
    pub intake: Intake,
    /// The namespace that is watched, if it is only one.
    pub namespace: Option<String>,
}

impl Sink<SidecarJob> for SidecarJobIntake {
    fn apply(&self, mut object: SidecarJob) {
        object.metadata.managed_fields = None;
        object.annotations_mut().remove(LAST_APPLIED);
        let key = ObjectKey::of(&object.metadata);
        let uid = object.uid().unwrap_or_default();
        let caches = &self.intake.caches;
        if let Some(former) = caches.sidecar_jobs.get(&key)
            && former.metadata.uid.as_ref() != Some(&uid)
        {
            self.intake.forget(&former.uid().unwrap_or_default());
        }
        caches.sidecar_jobs.put(key.clone(), &uid, object);
        self.intake.note_valid("SidecarJob", &key);
        self.intake.look_at(key);
    }

    fn invalid(&self, invalid: InvalidObject) {
        let key = ObjectKey::of(&invalid.metadata);
        self.intake.note_invalid("SidecarJob", invalid);
        self.intake.look_at(key);
    }

    fn delete(&self, metadata: &ObjectMeta) {
        let key = ObjectKey::of(metadata);
        self.intake.note_valid("SidecarJob", &key);
        if let Some(uid) = self.intake.caches.sidecar_jobs.remove(&key) {
            self.intake.forget(&uid);
        }
    }

    fn listed(&self, keys: HashSet<ObjectKey>) {
        let namespace = self.namespace.as_deref();
        self.intake.keep_valid("SidecarJob", namespace, &keys);
        let gone = self.intake.caches.sidecar_jobs.keep_only(namespace, &keys);
        for (_, uid) in gone {
            self.intake.forget(&uid);
        }
    }
}

/// Jobs of SidecarJobs.
#[derive(Clone, Debug)]
pub struct JobIntake {
    /// Where news goes.
    pub intake: Intake,
    /// The namespace that is watched, if it is only one.
    pub namespace: Option<String>,
}

impl JobIntake {
    fn keep(&self, key: ObjectKey, kept: Option<KeptJob>) {
        let jobs = &self.intake.caches.jobs;
        match kept {
            Some(kept) => {
                let (namespace, owner) = (key.namespace.clone(), kept.owner.clone());
                if jobs.put(key, &owner, kept) {
                    self.intake.look_at_owner(&namespace, &owner);
                }
            }
            None => self.forget(&key),
        }
    }

    fn forget(&self, key: &ObjectKey) {
        if let Some(owner) = self.intake.caches.jobs.remove(key) {
            self.intake.look_at_owner(&key.namespace, &owner);
        }
    }
}

impl Sink<Job> for JobIntake {
    fn apply(&self, job: Job) {
        let key = ObjectKey::of(&job.metadata);
        self.intake.note_valid("Job", &key);
        self.keep(key, keep_job(&job));
    }

    fn invalid(&self, invalid: InvalidObject) {
        self.intake.note_invalid("Job", invalid);
    }

    fn delete(&self, metadata: &ObjectMeta) {
        let key = ObjectKey::of(metadata);
        self.intake.note_valid("Job", &key);
        self.forget(&key);
    }

    fn listed(&self, keys: HashSet<ObjectKey>) {
        let namespace = self.namespace.as_deref();
        self.intake.keep_valid("Job", namespace, &keys);
        for (key, owner) in self.intake.caches.jobs.keep_only(namespace, &keys) {
            self.intake.look_at_owner(&key.namespace, &owner);
        }
    }
}

/// Pods of those Jobs.
#[derive(Clone, Debug)]
pub struct PodIntake {
    /// Where news goes.
    pub intake: Intake,
    /// The namespace that is watched, if it is only one.
    pub namespace: Option<String>,
}

impl PodIntake {
    fn keep(&self, key: ObjectKey, kept: Option<KeptPod>) {
        let pods = &self.intake.caches.pods;
        match kept {
            Some(kept) => {
                let (namespace, owner) = (key.namespace.clone(), kept.owner.clone());
                if pods.put(key, &owner, kept) {
                    self.intake.look_at_owner(&namespace, &owner);
                }
            }
            None => self.forget(&key),
        }
    }

    fn forget(&self, key: &ObjectKey) {
        if let Some(owner) = self.intake.caches.pods.remove(key) {
            self.intake.look_at_owner(&key.namespace, &owner);
        }
    }
}

impl Sink<WorkerPod> for PodIntake {
    fn apply(&self, pod: WorkerPod) {
        let key = ObjectKey::of(&pod.metadata);
        self.intake.note_valid("Pod", &key);
        self.keep(key, keep_pod(&pod));
    }

    fn invalid(&self, invalid: InvalidObject) {
        self.intake.note_invalid("Pod", invalid);
    }

    fn delete(&self, metadata: &ObjectMeta) {
        let key = ObjectKey::of(metadata);
        self.intake.note_valid("Pod", &key);
        self.forget(&key);
    }

    fn listed(&self, keys: HashSet<ObjectKey>) {
        let namespace = self.namespace.as_deref();
        self.intake.keep_valid("Pod", namespace, &keys);
        for (key, owner) in self.intake.caches.pods.keep_only(namespace, &keys) {
            self.intake.look_at_owner(&key.namespace, &owner);
        }
    }
}
