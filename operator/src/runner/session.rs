//! The work on one run: what all parts of it share.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rules::model::{BatchFacts, GivenUp, LockFacts, PlanFacts, RunFacts, SealFacts};
use storage::state::RunId;
use storage::state::batch::{Batch, WorkItem};
use storage::state::fence::Fence;
use storage::state::writer::WriterLock;
use storage::{RequestCounts, Store, Stores};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::book::Book;
use super::budget::{Budget, Live};
use super::ending::{self, abandon_claim};
use super::restart::until_it_ends;
use super::trouble::{self, Failed, Remedy};
use super::{
    Attempt, Hold, JobKey, Pace, RunnerError, follower, lock, lock::keep, planner, sealer, settle,
};

/// How long a task that panicked rests before what it did may be asked for again.
const REST_AFTER_PANIC: Duration = Duration::from_secs(30);

/// What tasks do, in words.
const WRITE_BATCH: &str = "write a batch";
const KEEP: &str = "keep the writer lock";
const FOLLOW: &str = "follow the run";
const PLAN: &str = "make the plan";
const SETTLE: &str = "settle an attempt";
const SEAL: &str = "seal the output";

/// Number of attempts at all batches.
fn attempts(batches: &[BatchFacts]) -> usize {
    batches.iter().map(|batch| batch.attempts.len()).sum()
}

/// The work on one run.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) job: JobKey,
    pub(super) run: RunId,
    pub(super) hold: Hold,
    pub(super) pace: Pace,
    stores: Mutex<Arc<Stores>>,
    /// Requests of stores that were swapped for others.
    past_requests: Mutex<RequestCounts>,
    facts: watch::Sender<Arc<RunFacts>>,
    wake: mpsc::UnboundedSender<String>,
    troubles: Mutex<BTreeMap<&'static str, String>>,
    /// What is known of the items.
    pub(super) book: Mutex<Book>,
    /// The writer lock while it is held.
    writer: Mutex<Option<Arc<WriterLock>>>,
    /// Somebody wants the lock that was lost, or has swapped the stores.
    pub(super) nudge: Notify,
    /// There are unfinished items.
    pub(super) items_changed: Notify,
    keeper: Mutex<Option<AbortHandle>>,
    /// What is done while the lock is held; `None` while it isn't.
    work: Mutex<Option<JoinSet<()>>>,
    /// Attempts whose files are being written, by batch and attempt.
    starting: Mutex<BTreeSet<(u32, u32)>>,
    /// Until the work is over.
    live: Mutex<Option<Live>>,
    /// What all runs share.
    pub(super) budget: Arc<Budget>,
}

impl Session {
    pub(super) fn begin(
        job: JobKey,
        run: RunId,
        hold: Hold,
        stores: Arc<Stores>,
        pace: Pace,
        wake: mpsc::UnboundedSender<String>,
        budget: Arc<Budget>,
    ) -> Arc<Self> {
        let facts = RunFacts {
            run: hold.run.clone(),
            lock: LockFacts::Acquiring,
            ..RunFacts::default()
        };
        let session = Arc::new(Self {
            book: Mutex::new(Book::new(pace.window)),
            job,
            run,
            hold,
            pace,
            stores: Mutex::new(stores),
            past_requests: Mutex::default(),
            facts: watch::channel(Arc::new(facts)).0,
            wake,
            troubles: Mutex::default(),
            writer: Mutex::default(),
            nudge: Notify::new(),
            items_changed: Notify::new(),
            keeper: Mutex::default(),
            work: Mutex::default(),
            starting: Mutex::default(),
            live: Mutex::new(Some(budget.begin())),
            budget,
        });
        let keeping = Arc::clone(&session);
        let keeper = tokio::spawn(async move {
            let begin = || keep(Arc::clone(&keeping));
            until_it_ends(begin, || keeping.after_panic(KEEP)).await;
        });
        let keeper = keeper.abort_handle();
        *lock(&session.keeper) = Some(keeper);
        session.announce();
        session
    }

    /// Whether this is the work that `hold` asks for. What is replaced and the manifest are
    /// those that the work began with.
    pub(super) fn is_for(&self, hold: &Hold) -> bool {
        self.hold.run == hold.run
            && self.hold.prefix == hold.prefix
            && self.hold.digest == hold.digest
    }

    /// Goes on with these stores, and asks for the lock again if it was lost.
    pub(super) fn confirm(&self, stores: Arc<Stores>) {
        let mut current = lock(&self.stores);
        let is_swapped = !Arc::ptr_eq(&current, &stores);
        if is_swapped {
            let mut past = lock(&self.past_requests);
            *past = *past + current.requests();
            *current = stores;
        }
        drop(current);
        if is_swapped || matches!(self.facts().lock, LockFacts::Lost { .. }) {
            self.nudge.notify_one();
        }
    }

    pub(super) fn facts(&self) -> Arc<RunFacts> {
        Arc::clone(&self.facts.borrow())
    }

    /// Changes the facts, and wakes the controller if they are others now.
    pub(super) fn update(&self, change: impl FnOnce(&mut RunFacts)) {
        let has_changed = self.facts.send_if_modified(|facts| {
            let mut next = RunFacts::clone(facts);
            change(&mut next);
            let differs = next != **facts;
            if differs {
                *facts = Arc::new(next);
            }
            differs
        });
        if has_changed {
            self.announce();
        }
    }

    /// Publishes what the book knows.
    pub(super) fn publish_items(&self) {
        let (batches, progress) = {
            let book = lock(&self.book);
            (book.batches(), book.progress())
        };
        self.update(|facts| {
            // What is missing is being made again.
            let is_started = attempts(&batches) > attempts(&facts.batches);
            if is_started && matches!(facts.seal, SealFacts::Missing { .. }) {
                facts.seal = SealFacts::None;
            }
            facts.batches = batches;
            facts.progress = progress;
        });
    }

    pub(super) fn announce(&self) {
        // Nobody listens any more once the process ends.
        let _ = self.wake.send(self.job.uid.clone());
    }

    /// Names a trouble that is being retried, or says that it is over.
    pub(super) fn trouble(&self, what: &'static str, words: Option<String>) {
        let mut troubles = lock(&self.troubles);
        match words {
            Some(words) => troubles.insert(what, words),
            None => troubles.remove(what),
        };
        let first = troubles.values().next().cloned();
        drop(troubles);
        if self.facts().trouble != first {
            self.update(|facts| facts.trouble = first);
        }
    }

    /// Does something until it succeeds or fails in a way that is worth no other try soon.
    pub(super) async fn persist<'a, T>(
        &self,
        what: &'static str,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, Failed>>,
    ) -> Result<T, Failed> {
        self.repeat(what, attempt, |remedy| remedy == Remedy::Again)
            .await
    }

    /// Does something until it succeeds, or can't ever.
    pub(super) async fn insist<'a, T>(
        &self,
        what: &'static str,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, Failed>>,
    ) -> Result<T, Failed> {
        self.repeat(what, attempt, |remedy| remedy != Remedy::Never)
            .await
    }

    async fn repeat<'a, T>(
        &self,
        what: &'static str,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, Failed>>,
        goes_on: impl Fn(Remedy) -> bool,
    ) -> Result<T, Failed> {
        let mut failures = 0;
        loop {
            let result = attempt().await;
            match result {
                Err(error) if goes_on(error.remedy()) => {
                    failures += 1;
                    tracing::warn!(job = %self.job.name, run = %self.run, %error, "can't {what}; trying again");
                    self.trouble(what, Some(format!("can't {what}: {error}; trying again")));
                    self.rest(failures).await;
                }
                result => {
                    self.trouble(what, None);
                    return result;
                }
            }
        }
    }

    /// Waits as long as so many failures in a row call for.
    pub(super) async fn rest(&self, failures: u32) {
        let Pace {
            first_pause,
            longest_pause,
            ..
        } = self.pace;
        let pause = trouble::pause(first_pause, longest_pause, failures, rand::random());
        tokio::time::sleep(pause).await;
    }

    pub(super) fn stores(&self) -> Arc<Stores> {
        Arc::clone(&lock(&self.stores))
    }

    /// The store of the output.
    pub(super) fn output(&self) -> Result<Arc<dyn Store>, Failed> {
        Ok(self.stores().open(&self.hold.prefix)?)
    }

    pub(super) fn requests(&self) -> RequestCounts {
        *lock(&self.past_requests) + self.stores().requests()
    }

    /// The lock is held: work may begin.
    pub(super) fn set_writer(self: &Arc<Self>, writer: WriterLock) {
        let epoch = writer.epoch();
        *lock(&self.writer) = Some(Arc::new(writer));
        let is_new = {
            let mut work = lock(&self.work);
            let is_new = work.is_none();
            work.get_or_insert_default();
            is_new
        };
        self.update(|facts| {
            facts.lock = LockFacts::Held { epoch };
            facts.plan = match std::mem::take(&mut facts.plan) {
                PlanFacts::Refused { .. } if is_new => PlanFacts::None,
                plan => plan,
            };
        });
        if is_new {
            let session = Arc::clone(self);
            self.spawn(FOLLOW, async move {
                let begin = || follower::follow(Arc::clone(&session));
                until_it_ends(begin, || session.after_panic(FOLLOW)).await;
            });
        }
    }

    pub(super) fn writer(&self) -> Option<Arc<WriterLock>> {
        lock(&self.writer).clone()
    }

    /// What is asked before something is written.
    pub(super) fn fence(&self) -> Result<Fence, Failed> {
        self.writer()
            .map(|writer| writer.fence())
            .ok_or(Failed::NotHeld)
    }

    /// The lock is lost: nothing goes on. What was under way has to be asked for again.
    pub(super) async fn clear_writer(&self) {
        lock(&self.writer).take();
        let work = lock(&self.work).take();
        if let Some(mut work) = work {
            work.shutdown().await;
        }
        lock(&self.starting).clear();
        lock(&self.troubles).clear();
        self.update(|facts| {
            facts.trouble = None;
            if matches!(facts.plan, PlanFacts::Going { .. }) {
                facts.plan = PlanFacts::None;
            }
            if matches!(facts.seal, SealFacts::Going { .. }) {
                facts.seal = SealFacts::None;
            }
        });
        lock(&self.book).forget_requests();
    }

    /// Begins a piece of work that lasts as long as the lock, at most.
    fn spawn(
        self: &Arc<Self>,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let session = Arc::clone(self);
        let guarded = async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                session.after_panic(what).await;
            }
        };
        if let Some(work) = &mut *lock(&self.work) {
            while work.try_join_next().is_some() {}
            work.spawn(guarded);
        }
    }

    /// A defect of ours: say so, and let it be asked for again after a while.
    async fn after_panic(&self, what: &'static str) {
        tracing::error!(job = %self.job.name, run = %self.run, "a task panicked: {what}");
        self.trouble(
            what,
            Some(format!("can't {what}: internal error; trying again")),
        );
        tokio::time::sleep(REST_AFTER_PANIC).await;
        self.trouble(what, None);
        // What else is under way goes on.
        self.update(|facts| match (what, &facts.plan, &facts.seal) {
            (PLAN, PlanFacts::Going { .. }, _) => facts.plan = PlanFacts::None,
            (SEAL, _, SealFacts::Going { .. }) => facts.seal = SealFacts::None,
            _ => {}
        });
        if what == SETTLE {
            lock(&self.book).forget_requests();
        }
        if what == WRITE_BATCH {
            lock(&self.starting).clear();
        }
        // Whoever decides may have nothing else to look at.
        self.announce();
    }

    pub(super) fn plan(self: &Arc<Self>) {
        if self.writer().is_none() {
            return;
        }
        let mut is_new = false;
        self.update(|facts| {
            if facts.plan == PlanFacts::None {
                facts.plan = PlanFacts::Going { listed: 0 };
                is_new = true;
            }
        });
        if is_new {
            self.spawn(PLAN, planner::make(Arc::clone(self)));
        }
    }

    /// Sees to it that the file of an attempt is written; whether it is there, with these items.
    pub(super) fn start(self: &Arc<Self>, attempt: &Attempt) -> Result<bool, RunnerError> {
        let not_held = || RunnerError::NotHeld {
            prefix: self.hold.prefix.clone(),
        };
        // Workers of another epoch would find themselves fenced off at once.
        let writer = self
            .writer()
            .filter(|writer| writer.epoch() == attempt.epoch);
        if writer.ok_or_else(not_held)?.is_lost() {
            return Err(not_held());
        }
        let (batch, number) = (attempt.batch, attempt.attempt);
        if lock(&self.starting).contains(&(batch, number)) {
            return Ok(false);
        }
        match lock(&self.book).has_attempt(batch, number, &attempt.items) {
            Some(true) => return Ok(true),
            Some(false) => {
                return Err(RunnerError::OtherItems {
                    run: self.run.to_string(),
                    batch,
                    attempt: number,
                });
            }
            None => {}
        }
        let wanted = Batch::new(
            self.run.clone(),
            self.hold.digest.clone(),
            u64::from(batch),
            number,
            attempt
                .items
                .iter()
                .map(|(first, end)| WorkItem::from(*first..*end)),
        )
        .counting(attempt.epoch, attempt.tries);
        wanted.check(&self.hold.prefix)?;
        if lock(&self.starting).insert((batch, number)) {
            let task = Arc::clone(self).write_batch((batch, number), wanted);
            self.spawn(WRITE_BATCH, task);
        }
        Ok(false)
    }

    async fn write_batch(self: Arc<Self>, attempt: (u32, u32), wanted: Batch) {
        let write = || self.write_batch_once(&wanted).boxed();
        let written = self.insist(WRITE_BATCH, write).await;
        match written {
            Ok(written) => {
                lock(&self.book).add_batch(&written);
                self.publish_items();
                lock(&self.starting).remove(&attempt);
                // Whoever was woken by the facts may have asked too early.
                self.announce();
                self.items_changed.notify_one();
            }
            Err(error) => {
                lock(&self.starting).remove(&attempt);
                let message = format!("a batch can't be written: {error}");
                self.refuse("RunUnreadable", message);
            }
        }
    }

    async fn write_batch_once(&self, wanted: &Batch) -> Result<Batch, Failed> {
        self.fence()?.check().await?;
        Ok(wanted.clone().write(&*self.output()?).await?)
    }

    /// Nothing can be made of the run, for a reason that no retry mends, or that a person does.
    pub(super) fn refuse(&self, reason: &str, message: String) {
        self.update(|facts| {
            facts.plan = PlanFacts::Refused {
                reason: reason.to_owned(),
                message,
            };
        });
    }

    pub(super) fn settle(self: &Arc<Self>, batch: u32, attempt: u32, death: Option<String>) {
        let is_new = self.writer().is_some() && lock(&self.book).ask_to_settle(batch, attempt);
        if is_new {
            self.spawn(
                SETTLE,
                settle::settle(Arc::clone(self), batch, attempt, death),
            );
        }
    }

    pub(super) fn seal(self: &Arc<Self>, given_up: Vec<GivenUp>) {
        if self.writer().is_none() {
            return;
        }
        let mut is_new = false;
        self.update(|facts| {
            if matches!(facts.seal, SealFacts::None | SealFacts::Missing { .. }) {
                facts.seal = SealFacts::Going { checked: 0 };
                is_new = true;
            }
        });
        if is_new {
            self.spawn(SEAL, sealer::seal(Arc::clone(self), given_up));
        }
    }

    /// What is kept of the facts once the work is over. The numbers of metrics don't fall.
    pub(super) fn summary(&self) -> Arc<RunFacts> {
        let facts = self.facts();
        Arc::new(RunFacts {
            run: facts.run.clone(),
            lock: LockFacts::Released,
            progress: facts.progress.clone(),
            ..RunFacts::default()
        })
    }

    /// Ends all work; the lock stays as it is.
    pub(super) async fn stop(&self) -> Option<Arc<WriterLock>> {
        if let Some(keeper) = lock(&self.keeper).take() {
            keeper.abort();
        }
        let work = lock(&self.work).take();
        if let Some(mut work) = work {
            work.shutdown().await;
        }
        lock(&self.writer).take()
    }

    /// Ends all work and gives up the lock, if the store answers in time; also one that was being
    /// taken.
    pub(super) async fn finish(&self) {
        let writer = self.stop().await;
        lock(&self.live).take();
        let given_up = async {
            match &writer {
                Some(writer) => writer.release().await.map_err(|error| error.to_string()),
                None => {
                    if let Ok(output) = self.output() {
                        abandon_claim(&*output, &self.job.uid, &self.run).await;
                    }
                    Ok(())
                }
            }
        };
        match tokio::time::timeout(self.pace.release_within, given_up).await {
            Ok(Ok(())) => {}
            Ok(Err(words)) => ending::tell(&self.hold.prefix, &words),
            Err(_) => ending::tell(&self.hold.prefix, "the store has not answered in time"),
        }
    }
}
