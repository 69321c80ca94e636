//! The background work on output prefixes: one piece of work for each SidecarJob, which takes
//! the writer lock, plans, follows what workers report, settles attempts and seals.
//!
//! Nothing here decides. [`Runners`] is told what to do (`Hold`, `Plan`, `Start`, `Settle`,
//! `Seal`, `Release`), returns at once and works in the background; what has become of it is in
//! the [`RunFacts`] of the object, a new snapshot of which wakes the controller. All of it is
//! idempotent: what is asked for again is confirmed, not done twice.
//!
//! | module | does |
//! |---|---|
//! | `lock` | takes the writer lock, asks again while somebody else has it, notices its loss |
//! | `planner` | lists main against the output, writes the plan |
//! | `follower` | reads the reports of unfinished items |
//! | `book` | what is known of each item, and the sums over them; pure |
//! | `window` | what was finished lately; pure |
//! | `silence` | items of which nothing has been heard for long; pure |
//! | `restart` | work that lasts, begun again if it panics |
//! | `settle` | what became of an attempt whose Job is over |
//! | `sealer` | verifies, then writes manifest and sentinel |
//! | `walk` | the output against plan and lines |
//! | `failures` | the report of failed shards |
//! | `footers` | a few footers of main or of the output |
//!
//! Trouble with a store is retried with back-off and named in `RunFacts::trouble`. A refusal
//! that needs a person (no access, another pipeline's shards, nothing to do) is
//! `PlanFacts::Refused`, before the lock is held too; access that is refused is asked for again
//! now and then, and the refusal goes from the facts when it is granted.

mod book;
mod failures;
mod follower;
mod footers;
mod lock;
pub mod planner;
mod restart;
mod sealer;
mod session;
mod settle;
mod silence;
mod trouble;
mod walk;
mod window;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use storage::state::RunId;
use storage::state::writer::DEFAULT_TTL;
use storage::{RequestCounts, Stores};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::model::{Item, LockFacts, RunFacts};
use session::Session;
pub use trouble::Failed;

/// For how long one storage call of a runner is tried again before the trouble shows in the
/// facts: give it to [`storage::StorageConfig::retry_budget`]. The runner itself never gives up.
pub const RETRY_BUDGET: Duration = Duration::from_secs(20);

/// Whose prefix it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobKey {
    /// `metadata.uid`: what the writer lock belongs to, also after a restart.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The prefix to hold, and for what: the fields of `Action::Hold`.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// Name of the run.
    pub run: String,
    /// Effective output prefix.
    pub prefix: String,
    /// Digest of the pipeline.
    pub digest: String,
    /// Digests whose shards may be replaced.
    pub replaces: Vec<String>,
    /// The manifest of the run, which is frozen if none is yet.
    pub manifest: serde_json::Value,
    /// Keep shards that are in place and right.
    pub skip_existing: bool,
}

/// The attempt to start: the fields of `Action::Start`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The batch.
    pub batch: u32,
    /// The attempt.
    pub attempt: u32,
    /// Its items.
    pub items: Vec<Item>,
    /// The epoch that its workers will carry.
    pub epoch: u64,
    /// Earlier attempts at these items that ended by themselves.
    pub tries: u32,
}

/// How often and how long; the same for all.
#[derive(Debug, Clone)]
pub struct Pace {
    /// How long a lock lives without a renewal.
    pub lock_ttl: Duration,
    /// How often a lock that somebody else has is asked for again.
    pub ask_again: Duration,
    /// How often reports of unfinished items are looked at.
    pub follow_every: Duration,
    /// Over which time speed is measured.
    pub window: Duration,
    /// After which time a worker that reports nothing is taken for hung.
    pub silent_after: Duration,
    /// First pause after trouble with a store; doubled each time.
    pub first_pause: Duration,
    /// Longest pause after trouble with a store.
    pub longest_pause: Duration,
    /// How long the release of a lock may take.
    pub release_within: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            lock_ttl: DEFAULT_TTL,
            ask_again: Duration::from_secs(15),
            follow_every: Duration::from_secs(10),
            window: Duration::from_secs(300),
            silent_after: Duration::from_secs(600),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            release_within: Duration::from_secs(5),
        }
    }
}

/// Why something could not be asked for, or be done at once.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The object has no background work of that run.
    #[error("run {run} has no work in the background; it begins with the next look at the object")]
    NoSuchRun {
        /// The run.
        run: String,
    },
    /// The writer lock isn't held (any more, or yet).
    #[error("the writer lock of {prefix} is not held")]
    NotHeld {
        /// The prefix.
        prefix: String,
    },
    /// A batch that is there has other items: it was started before, from an older look.
    #[error(
        "attempt {attempt} at batch {batch} of run {run} is there with other items; nothing was \
         started"
    )]
    OtherItems {
        /// The run.
        run: String,
        /// The batch.
        batch: u32,
        /// The attempt.
        attempt: u32,
    },
    /// A name, a URI or a state file that can't be worked with, or a store that fails.
    #[error(transparent)]
    State(#[from] storage::state::StateError),
    /// The store did not answer in time.
    #[error("{prefix}: the store has not answered within {seconds} s")]
    TimedOut {
        /// The prefix.
        prefix: String,
        /// Seconds waited.
        seconds: u64,
    },
}

/// How long a batch file may take to be written: a reconcile waits for it.
const START_WITHIN: Duration = Duration::from_secs(30);

/// The background work of all SidecarJobs, by uid.
#[derive(Debug)]
pub struct Runners {
    pace: Pace,
    wake: mpsc::UnboundedSender<String>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    ending: Mutex<JoinSet<()>>,
    /// Requests of sessions that are gone.
    past_requests: Mutex<RequestCounts>,
}

impl Runners {
    /// No work yet. The receiver gets the uid of an object whenever its facts have changed.
    pub fn new(pace: Pace) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (wake, woken) = mpsc::unbounded_channel();
        let runners = Self {
            pace,
            wake,
            sessions: Mutex::default(),
            ending: Mutex::default(),
            past_requests: Mutex::default(),
        };
        (runners, woken)
    }

    /// What is known of the object's run; `None` if nothing was asked for since the operator
    /// started.
    pub fn facts(&self, uid: &str) -> Option<Arc<RunFacts>> {
        Some(self.session(uid)?.facts())
    }

    /// Carries out `Action::Hold`: begins the work on a run, or confirms it. `stores` is how
    /// the job's prefixes are reached with the job's identity; hand in others whenever they have
    /// changed, and the work goes on with those. Work on another run of the object is stopped.
    /// To be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the name of the run is none.
    pub fn hold(&self, job: &JobKey, stores: Arc<Stores>, hold: Hold) -> Result<(), RunnerError> {
        let run: RunId = hold.run.parse()?;
        if let Some(session) = self.session(&job.uid) {
            if session.is_for(&hold) {
                session.confirm(stores);
                return Ok(());
            }
            self.end(&job.uid);
        }
        let session = Session::begin(
            job.clone(),
            run,
            hold,
            stores,
            self.pace.clone(),
            self.wake.clone(),
        );
        lock(&self.sessions).insert(job.uid.clone(), session);
        Ok(())
    }

    /// Carries out `Action::Plan`: makes the plan of the run, unless it is there.
    pub fn plan(&self, uid: &str) {
        if let Some(session) = self.session(uid) {
            session.plan();
        }
    }

    /// The first half of `Action::Start`: writes the file of an attempt at a batch, if the lock
    /// is held. Create the Job only after this has succeeded. If the file is there already with
    /// the same items, that is success.
    ///
    /// # Errors
    /// If the lock isn't held, the file is there with other items, or can't be written. The
    /// next look at the object decides anew.
    pub async fn start(&self, uid: &str, run: &str, attempt: &Attempt) -> Result<(), RunnerError> {
        let session = self
            .session(uid)
            .filter(|session| session.run.as_str() == run);
        let Some(session) = session else {
            return Err(RunnerError::NoSuchRun {
                run: run.to_owned(),
            });
        };
        let started = session.start(attempt);
        match tokio::time::timeout(START_WITHIN, started).await {
            Ok(started) => started,
            Err(_) => Err(RunnerError::TimedOut {
                prefix: session.hold.prefix.clone(),
                seconds: START_WITHIN.as_secs(),
            }),
        }
    }

    /// Carries out `Action::Settle`: reads the last reports of an attempt whose Job is over.
    pub fn settle(&self, uid: &str, batch: u32, attempt: u32) {
        if let Some(session) = self.session(uid) {
            session.settle(batch, attempt);
        }
    }

    /// Carries out `Action::Seal`: lists the output against the plan, writes manifest and
    /// sentinel.
    pub fn seal(&self, uid: &str) {
        if let Some(session) = self.session(uid) {
            session.seal();
        }
    }

    /// Carries out `Action::Release`: stops the work and gives the lock up, in the background.
    /// The facts stay, with `LockFacts::Released`; without work nothing is done.
    pub fn release(&self, uid: &str) {
        if let Some(session) = self.session(uid)
            && session.mark_released()
        {
            self.finish(session);
        }
    }

    /// The object is gone: as [`Self::release`], and its facts are forgotten.
    pub fn forget(&self, uid: &str) {
        self.end(uid);
    }

    /// Whose work is there.
    pub fn uids(&self) -> Vec<String> {
        lock(&self.sessions).keys().cloned().collect()
    }

    /// Requests to stores since the operator started.
    pub fn requests(&self) -> RequestCounts {
        let sessions = lock(&self.sessions);
        let current = sessions.values().map(|session| session.requests()).sum();
        *lock(&self.past_requests) + current
    }

    /// Ends all work because the process ends. Locks of runs that go on are kept: whoever is
    /// next renews them in the same epoch, and the workers go on meanwhile. Locks that are being
    /// given up are waited for.
    pub async fn shut_down(&self) {
        let sessions: Vec<_> = lock(&self.sessions).drain().collect();
        for (_, session) in sessions {
            // Those that are being given up end by themselves, with the lock that they have.
            if session.facts().lock != LockFacts::Released {
                session.stop().await;
            }
        }
        let mut ending = std::mem::take(&mut *lock(&self.ending));
        while ending.join_next().await.is_some() {}
    }

    fn session(&self, uid: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(uid).cloned()
    }

    fn end(&self, uid: &str) {
        let session = lock(&self.sessions).remove(uid);
        if let Some(session) = session {
            let mut past = lock(&self.past_requests);
            *past = *past + session.requests();
            drop(past);
            if session.mark_released() {
                self.finish(session);
            }
        }
    }

    fn finish(&self, session: Arc<Session>) {
        let mut ending = lock(&self.ending);
        while ending.try_join_next().is_some() {}
        ending.spawn(async move { session.finish().await });
    }
}

/// A lock whatever became of another holder: what is guarded here is never left half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
