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
//! | `budget`, `bounds` | what all runs share, and how much is kept of each |
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

pub mod beside;
pub mod book;
mod bounds;
pub mod budget;
mod ending;
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

use storage::state::writer::DEFAULT_TTL;
use storage::state::{RunId, StateError};
use storage::{RequestCounts, Stores};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use budget::Budget;
use rules::model::{GivenUp, Item, LockFacts, RunFacts};
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
    /// Main prefix of the run.
    pub main: String,
    /// The manifest of the run, which is frozen if none is yet; `None`: one has to be there.
    pub manifest: Option<serde_json::Value>,
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
    /// How long the lock of an object that is gone is kept for pods that have not gone yet.
    pub pods_go_within: Duration,
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
            pods_go_within: Duration::from_secs(120),
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
    /// A name that can't be worked with.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The background work of all SidecarJobs, by uid.
#[derive(Debug)]
pub struct Runners {
    pace: Pace,
    wake: mpsc::UnboundedSender<String>,
    budget: Arc<Budget>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// Of runs whose work is over: a few kilobytes each.
    summaries: Mutex<HashMap<String, Arc<RunFacts>>>,
    ending: Mutex<JoinSet<()>>,
    /// The process ends: nothing is waited for any more.
    stopping: watch::Sender<bool>,
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
            budget: Arc::default(),
            sessions: Mutex::default(),
            summaries: Mutex::default(),
            ending: Mutex::default(),
            stopping: watch::channel(false).0,
            past_requests: Mutex::default(),
        };
        (runners, woken)
    }

    /// What is known of the object's run; `None` if nothing was asked for since the operator
    /// started.
    pub fn facts(&self, uid: &str) -> Option<Arc<RunFacts>> {
        match self.session(uid) {
            Some(session) => Some(session.facts()),
            None => lock(&self.summaries).get(uid).cloned(),
        }
    }

    /// What all runs share.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Runs whose work is over, of which a summary is kept.
    pub fn ended(&self) -> usize {
        lock(&self.summaries).len()
    }

    /// How often reports are looked at and how long a lock lives, with as many runs as there are.
    pub fn intervals(&self) -> (Duration, Duration) {
        let Pace {
            follow_every,
            lock_ttl,
            ..
        } = self.pace;
        (
            self.budget.looks(follow_every),
            self.budget.lock_ttl(lock_ttl),
        )
    }

    /// Carries out `Action::Hold`: begins the work on a run, or confirms it. `stores` is how
    /// the job's prefixes are reached with the job's identity; hand in others whenever they have
    /// changed, and the work goes on with those. Work on another run of the object is stopped.
    /// To be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the name of the run is none.
    pub fn hold(&self, job: &JobKey, stores: Arc<Stores>, hold: Hold) -> Result<(), RunnerError> {
        let run: RunId = hold.run.parse().map_err(StateError::from)?;
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
            Arc::clone(&self.budget),
        );
        lock(&self.summaries).remove(&job.uid);
        lock(&self.sessions).insert(job.uid.clone(), session);
        Ok(())
    }

    /// Carries out `Action::Plan`: makes the plan of the run, unless it is there.
    pub fn plan(&self, uid: &str) {
        if let Some(session) = self.session(uid) {
            session.plan();
        }
    }

    /// The first half of `Action::Start`: writes the file of an attempt at a batch in the
    /// background, if the lock is held. Whether it is there with these items: only then create
    /// the Job. Otherwise ask again once the facts have changed.
    ///
    /// # Errors
    /// If the lock isn't held, or the file is there with other items. The next look at the object
    /// decides anew.
    pub fn start(&self, uid: &str, run: &str, attempt: &Attempt) -> Result<bool, RunnerError> {
        let session = self
            .session(uid)
            .filter(|session| session.run.as_str() == run);
        let Some(session) = session else {
            return Err(RunnerError::NoSuchRun {
                run: run.to_owned(),
            });
        };
        session.start(attempt)
    }

    /// Carries out `Action::Settle`: reads the last reports of an attempt whose Job is over.
    /// `death` is how its workers died, if they could not say so themselves.
    pub fn settle(&self, uid: &str, batch: u32, attempt: u32, death: Option<String>) {
        if let Some(session) = self.session(uid) {
            session.settle(batch, attempt, death);
        }
    }

    /// Carries out `Action::Seal`: lists the output against the plan, writes manifest and
    /// sentinel. Shards of items that were given up have failed where nothing else is known.
    pub fn seal(&self, uid: &str, given_up: Vec<GivenUp>) {
        if let Some(session) = self.session(uid) {
            session.seal(given_up);
        }
    }

    /// Carries out `Action::Release`: stops the work and gives the lock up, in the background.
    /// A summary of the facts stays, with `LockFacts::Released`; without work nothing is done.
    pub fn release(&self, uid: &str) {
        if let Some(session) = self.take(uid) {
            self.finish(Arc::clone(&session));
            lock(&self.summaries).insert(uid.to_owned(), session.summary());
            session.announce();
        }
    }

    /// Carries out `Action::Abandon`: gives up, in the background, the lock of a run that is over,
    /// if a process before this one ended without having done so. Asked for once; what is known
    /// of the run from then on is that its lock is released.
    pub fn abandon(&self, job: &JobKey, stores: Arc<Stores>, run: &str, prefix: &str) {
        if self.facts(&job.uid).is_some() {
            return;
        }
        let facts = RunFacts {
            run: run.to_owned(),
            lock: LockFacts::Released,
            ..RunFacts::default()
        };
        lock(&self.summaries).insert(job.uid.clone(), Arc::new(facts));
        let (uid, run, prefix) = (job.uid.clone(), run.to_owned(), prefix.to_owned());
        let within = self.pace.release_within;
        self.in_the_end(async move { ending::abandon(&stores, &uid, &run, &prefix, within).await });
    }

    /// The object is gone: as [`Self::release`], and its facts are forgotten.
    pub fn forget(&self, uid: &str) {
        lock(&self.summaries).remove(uid);
        self.end(uid);
    }

    /// The object is gone: as [`Self::forget`], but its lock is kept until its pods, which
    /// `are_gone` asks for, have gone too, or have had the time to.
    pub fn forget_after(&self, uid: &str, are_gone: impl Fn() -> bool + Send + Sync + 'static) {
        lock(&self.summaries).remove(uid);
        if are_gone() {
            return self.end(uid);
        }
        let Some(session) = self.take(uid) else {
            return;
        };
        let (within, mut stopping) = (self.pace.pods_go_within, self.stopping.subscribe());
        self.in_the_end(async move {
            let gone = async {
                while !are_gone() {
                    tokio::time::sleep(ending::LOOK_AGAIN).await;
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(within, gone) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
            session.finish().await;
        });
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
        self.stopping.send_replace(true);
        let sessions: Vec<_> = lock(&self.sessions).drain().collect();
        for (_, session) in sessions {
            session.stop().await;
        }
        let mut ending = std::mem::take(&mut *lock(&self.ending));
        while ending.join_next().await.is_some() {}
    }

    fn session(&self, uid: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(uid).cloned()
    }

    fn end(&self, uid: &str) {
        if let Some(session) = self.take(uid) {
            self.finish(session);
        }
    }

    /// Takes the work of an object from those that go on.
    fn take(&self, uid: &str) -> Option<Arc<Session>> {
        let session = lock(&self.sessions).remove(uid)?;
        self.count(&session);
        Some(session)
    }

    /// Keeps count of what a session has requested that goes.
    fn count(&self, session: &Session) {
        let mut past = lock(&self.past_requests);
        *past = *past + session.requests();
    }

    fn finish(&self, session: Arc<Session>) {
        self.in_the_end(async move { session.finish().await });
    }

    /// Does something that the end of the process waits for.
    fn in_the_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut ending = lock(&self.ending);
        while ending.try_join_next().is_some() {}
        ending.spawn(work);
    }
}

/// A lock whatever became of another holder: what is guarded here is never left half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
