//! What was decided: the new status, what to do, what to say, and when to look again.

use std::time::Duration;

use crds::SidecarJobStatus;
use k8s_openapi::api::batch::v1::Job;

use super::facts::Item;

/// A decision. Carried out in order: actions, then the status (if it differs), then events.
///
/// If the status names another run than before, there are no actions: the name has to be in the
/// API server before anything is created under it. A status is only ever written over the version
/// of the object that was observed (`resourceVersion`): two runs that begin from one old look would
/// both be right otherwise.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The whole new status; `None` if the object is being deleted.
    pub status: Option<SidecarJobStatus>,
    /// Whether the difference to the old status is of live numbers only.
    pub only_live_numbers: bool,
    /// What to do, in order. Each is idempotent.
    pub actions: Vec<Action>,
    /// What to tell people, after the status was written.
    pub events: Vec<EventNote>,
    /// When to look again if nothing happens.
    pub requeue: Duration,
}

/// Something to do. Those about the output are passed to the background work of the object and
/// return at once; its facts tell what became of them.
#[derive(Clone, Debug)]
pub enum Action {
    /// Take the writer lock of `prefix` for `run`, and keep it; read what a run of that name left.
    Hold {
        /// The run.
        run: String,
        /// Effective output prefix.
        prefix: String,
        /// Digest of the pipeline.
        digest: String,
        /// Digests whose shards may be replaced.
        replaces: Vec<String>,
        /// Main prefix of the run.
        main: String,
        /// The manifest of the run, to be frozen beside the output if it isn't yet there; `None`
        /// if the spec has become another since, so that what is there has to do.
        manifest: Option<serde_json::Value>,
        /// Keep shards that are in place and right.
        skip_existing: bool,
    },
    /// Make the plan of the run that is held.
    Plan,
    /// See to it that the file of an attempt is written, and if it is there create its Job; else it
    /// is asked for again once the facts have changed. If a Job of that name
    /// exists and is controlled by the object, that is success. Before, one live read makes sure
    /// that `after`, the Job of the attempt before, is gone or has ended.
    Start {
        /// The batch.
        batch: u32,
        /// The attempt.
        attempt: u32,
        /// Its items.
        items: Vec<Item>,
        /// The epoch of the lock, and the number of earlier attempts at these items that ended by
        /// themselves: for the batch's file (`storage::state::batch::Batch::counting`), and from
        /// there back into `AttemptFacts`.
        epoch: u64,
        /// See `epoch`.
        tries: u32,
        /// The Job.
        job: Box<Job>,
        /// Name of the Job that has to be over.
        after: Option<String>,
    },
    /// Change the number of workers of a live Job.
    Scale {
        /// Name of the Job.
        name: String,
        /// Its version that this rests on.
        resource_version: String,
        /// `spec.parallelism`.
        parallelism: u32,
    },
    /// Suspend or resume a live Job.
    Suspend {
        /// Name of the Job.
        name: String,
        /// Its version that this rests on.
        resource_version: String,
        /// `spec.suspend`.
        suspend: bool,
    },
    /// Delete a Job and its pods (foreground).
    DeleteJob {
        /// Name of the Job.
        name: String,
    },
    /// Delete a pod.
    EndPod {
        /// Its name.
        name: String,
        /// Its `metadata.uid`.
        uid: String,
    },
    /// Read the reports of all items of an attempt whose Job is over.
    Settle {
        /// The batch.
        batch: u32,
        /// The attempt.
        attempt: u32,
        /// How its workers died, if they could not say so themselves: their pods go with the Job.
        death: Option<String>,
    },
    /// List the output against the plan, write failure report, manifest and (if whole) sentinel.
    Seal {
        /// Items whose shards count as failed where nothing else is known of them.
        given_up: Vec<GivenUp>,
    },
    /// Stop the background work and give up the lock.
    Release,
    /// Give up the lock of a run that is over, should a process before this one have left it.
    Abandon {
        /// The run.
        run: String,
        /// Effective output prefix.
        prefix: String,
    },
    /// Delete the SidecarJob itself: its time to live is over.
    DeleteObject,
}

/// Items that are not tried again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GivenUp {
    /// The items.
    pub items: Vec<Item>,
    /// Why, for those whose last worker did not say so itself.
    pub reason: Option<String>,
}

/// What a Job is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// The run.
    pub run: String,
    /// The batch.
    pub batch: u32,
    /// The attempt.
    pub attempt: u32,
    /// The fencing number that the workers carry.
    pub epoch: u64,
    /// Number of items.
    pub completions: u32,
    /// Workers at one time.
    pub parallelism: u32,
    /// Whether it starts suspended.
    pub suspend: bool,
    /// Effective output prefix.
    pub prefix: String,
    /// Whether the workers have an identity of their own towards the store.
    pub has_identity: bool,
    /// Digest of the run's pipeline.
    pub digest: String,
    /// Image of the workers where the spec names none.
    pub image: String,
}

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// Something went as it should.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Something to tell people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EventNote {
    /// Good or bad.
    pub kind: EventKind,
    /// A word, from `reasons`.
    pub reason: &'static str,
    /// What was done, a word.
    pub action: &'static str,
    /// In words.
    pub message: String,
}
