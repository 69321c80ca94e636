//! What one reconcile has seen. Built in one place (`observe`), read by the rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::SidecarJob;

use super::facts::RunFacts;

/// Everything that a decision about one SidecarJob rests on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object as the API server has it, status included.
    pub object: Arc<SidecarJob>,
    /// Its child Jobs: those that it controls, by our label.
    pub jobs: Vec<ObservedJob>,
    /// Its worker pods, summed.
    pub pods: ObservedPods,
    /// What no watch tells.
    pub asked: Asked,
    /// What the background work on its output prefix knows; `None` before it was started.
    pub run: Option<Arc<RunFacts>>,
    /// Why the operator can't act on the prefixes of the object until a person changes something
    /// (no identity towards the store, a Secret without a key). Looked into anew now and then,
    /// and only while the object has work to do. Nothing is done for such an object: `Stalled`
    /// with this reason and message.
    pub refusal: Option<Refusal>,
    /// Whether the object has an identity of its own towards the store (a Secret, a role), as far
    /// as that is known.
    pub has_identity: bool,
    /// Whether the namespace is being deleted, and the object's pods with it.
    pub is_namespace_going: bool,
    /// What went wrong when the decision before this one was carried out; `None` once one went
    /// well. Show it (`Reconciling`, reason `ProgressingWithRetry`, this message), and decide as
    /// if it weren't there: the controller spaces the attempts out by itself.
    pub trouble: Option<Trouble>,
    /// When live numbers (rates, counters) were last written to the status, in milliseconds since
    /// the epoch of Unix; `None` since the operator started.
    pub live_written_ms: Option<i64>,
    /// A random number, for the name of a run that begins now.
    pub random: u32,
    /// How the operator was installed.
    pub settings: Arc<Settings>,
}

/// What the API server was asked for, since no watch tells it: only while Jobs stand still.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Asked {
    /// Why the Job controller can't make the pods that a Job lacks, in its words.
    pub refused: Option<String>,
    /// Why a queue holds a Job back, in the words of its Workload.
    pub queued: Option<String>,
}

/// Something that stays as it is until a person acts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// A word for the condition, such as `IdentityNotAllowed` or `SecretNotFound`.
    pub reason: &'static str,
    /// In words, with the way out.
    pub message: String,
}

/// Something that was tried and will be tried again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trouble {
    /// A word, such as `JobRefused` (the API server takes no such Job) or `QuotaExceeded`.
    pub reason: &'static str,
    /// In words: the API server's, cut to a bearable length. The same words for the same trouble.
    pub message: String,
}

/// A child Job.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedJob {
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`: what tells it from another of its name.
    pub uid: String,
    /// For conditional writes.
    pub resource_version: String,
    /// The run that it belongs to, from its labels.
    pub run: String,
    /// Number of the batch within the run, from its labels; 0 is the canary if there is one.
    pub batch: u32,
    /// Number of the attempt at that batch, from 1.
    pub attempt: u32,
    /// The epoch that its workers carry.
    pub epoch: u64,
    /// Whether its `spec.suspend` is true.
    pub is_suspended: bool,
    /// Whether it was this operator that suspended it, by its annotation: nobody else's is resumed.
    pub is_suspended_by_us: bool,
    /// The queue whose label it carries: `suspend` and `parallelism` are the queue's then.
    pub queue: Option<String>,
    /// Digest of the pod template that it was built with, from its annotations.
    pub template: Option<String>,
    /// `spec.parallelism`.
    pub parallelism: u32,
    /// `spec.completions`: the items of the attempt.
    pub completions: u32,
    /// Pods that are pending or running.
    pub active: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Pods that are being deleted.
    pub terminating: u32,
    /// Whether any pod of it was ever made.
    pub has_had_pods: bool,
    /// Indexes that ended well.
    pub succeeded: u32,
    /// Indexes that ended badly for good (length of `failedIndexes`).
    pub failed_indexes: u32,
    /// How it ended; `None` while it runs. `FailureTarget` and `SuccessCriteriaMet` count only
    /// once no pod is left.
    pub end: Option<JobEnd>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

impl ObservedJob {
    /// Whether it may still do something.
    pub fn is_live(&self) -> bool {
        self.end.is_none() && !self.is_deleting
    }

    /// Whether the Job controller has still to make pods that are asked for.
    pub fn lacks_pods(&self) -> bool {
        let ended = self.succeeded.saturating_add(self.failed_indexes);
        let wanted = self.parallelism.min(self.completions.saturating_sub(ended));
        self.is_live() && !self.is_suspended && self.active + self.terminating < wanted
    }
}

/// How a Job ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JobEnd {
    /// Every index succeeded.
    Complete,
    /// Some didn't; the Job controller's reason and words.
    Failed {
        /// Such as `FailedIndexes` or `PodFailurePolicy`.
        reason: String,
        /// In words.
        message: String,
    },
}

/// The worker pods of a SidecarJob, summed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedPods {
    /// Pods that exist and have not ended.
    pub live: u32,
    /// Of them, pods whose container runs.
    pub ready: u32,
    /// Of them, pods that have no node yet or whose container hasn't started.
    pub pending: u32,
    /// The scheduler's words about a pod that fits on no node.
    pub unschedulable: Option<String>,
    /// Why a container can't start (image, config), in the kubelet's words.
    pub cannot_start: Option<String>,
    /// How a worker died that could not say so itself, such as `OOMKilled (exit 137)`. Its pod is
    /// there until its Job goes, and is in none of the counts.
    pub died: Option<String>,
    /// Pods whose worker has ended while another container runs on, and when it ended.
    pub outlived: Vec<PodRef>,
    /// That container.
    pub outlived_by: Option<String>,
    /// Pods whose worker runs, but of whose item nothing has been heard for long
    /// (`RunFacts::silent`), and since when they run.
    pub silent: Vec<PodRef>,
}

/// A pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`.
    pub uid: String,
    /// Since when it is so, in seconds since the epoch of Unix.
    pub since_s: i64,
}

/// How the operator was installed; the same for every object.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Image of the workers where the object names none.
    pub worker_image: String,
    /// Keys of labels that are copied from a SidecarJob to its Jobs and pods.
    pub copied_labels: Vec<String>,
    /// Environment that every worker gets (endpoint, region of the installation), by name.
    pub worker_environment: BTreeMap<String, String>,
    /// Seconds that an item should take.
    pub item_seconds: f64,
    /// Most items of a Job, at most 5,000.
    pub items_per_job: u32,
    /// Seconds between two writes of live numbers to a status.
    pub live_status_seconds: i64,
    /// Seconds over which speed is measured, and the least time between two changes of the number of workers.
    pub window_seconds: i64,
    /// Seconds after which a worker that reports nothing is taken for hung.
    pub silent_seconds: i64,
}
