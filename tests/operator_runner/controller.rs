//! The test as controller: it asks for things and waits for facts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use operator::runner::{Attempt, Hold, JobKey, Pace, RunnerError, Runners};
use rules::model::{
    GivenUp, Item, LockFacts, PlanFacts, PlanTotals, RunFacts, SealFacts, SealTotals,
};
use serde_json::json;
use storage::Stores;
use storage::state::RunId;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::place::Place;

/// What nothing here comes near.
const DEADLINE: Duration = Duration::from_secs(120);

/// The digest of the pipeline.
pub const DIGEST: &str = "d19e57";

/// A quick pace: tests wait on conditions, and these come soon.
pub fn pace() -> Pace {
    Pace {
        ask_again: Duration::from_millis(100),
        follow_every: Duration::from_millis(100),
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(500),
        ..Pace::default()
    }
}

/// One SidecarJob, as the controller sees it.
pub struct Controller {
    pub runners: Runners,
    woken: UnboundedReceiver<String>,
    pub job: JobKey,
    pub hold: Hold,
    stores: Arc<Stores>,
}

impl Controller {
    /// A job of this name on the place's output, with a new run.
    pub fn new(place: &Place, name: &str) -> Self {
        Self::of(place, name, "out/", RunId::generate().as_str())
    }

    /// A job on a prefix of the place.
    pub fn of(place: &Place, name: &str, prefix: &str, run: &str) -> Self {
        let (runners, woken) = Runners::new(pace());
        let prefix = place.uri(prefix);
        let job = JobKey {
            uid: format!("uid-of-{name}"),
            namespace: "tests".to_owned(),
            name: name.to_owned(),
        };
        let hold = Hold {
            run: run.to_owned(),
            digest: DIGEST.to_owned(),
            replaces: Vec::new(),
            main: place.uri("main/"),
            manifest: Some(json!({
                "apiVersion": "sidecarjob.dev/v1alpha1",
                "kind": "SidecarJob",
                "metadata": { "name": name, "namespace": "tests" },
                "spec": {
                    "dataset": { "mainPrefix": place.uri("main/") },
                    "output": { "prefix": &prefix },
                },
            })),
            prefix,
            skip_existing: true,
        };
        Self {
            runners,
            woken,
            job,
            hold,
            stores: Arc::clone(&place.stores),
        }
    }

    /// The same job with another run.
    pub fn next_run(&mut self) {
        self.hold.run = RunId::generate().to_string();
    }

    pub fn run(&self) -> RunId {
        self.hold.run.parse().unwrap()
    }

    /// The operator's process ends, and another one begins. `kill`: without the time to end.
    pub async fn restart(&mut self) {
        self.runners.shut_down().await;
        let (runners, woken) = Runners::new(pace());
        self.runners = runners;
        self.woken = woken;
    }

    /// Goes on with other stores.
    pub fn set_stores(&mut self, stores: Stores) {
        self.stores = Arc::new(stores);
    }

    pub fn hold(&self) {
        self.runners
            .hold(&self.job, Arc::clone(&self.stores), self.hold.clone())
            .unwrap();
    }

    pub fn facts(&self) -> Arc<RunFacts> {
        self.runners.facts(&self.job.uid).unwrap_or_default()
    }

    /// Waits until the facts are such, as a controller does: woken, not asking.
    pub async fn until<T>(&mut self, found: impl Fn(&RunFacts) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let facts = self.facts();
            if let Some(found) = found(&facts) {
                return found;
            }
            let left = DEADLINE.checked_sub(start.elapsed());
            let left = left.unwrap_or_else(|| panic!("still {facts:#?}"));
            let woken = tokio::time::timeout(left, self.woken.recv()).await;
            let woken = woken.unwrap_or_else(|_| panic!("still {:#?}", self.facts()));
            assert_eq!(woken.as_ref(), Some(&self.job.uid));
        }
    }

    /// Holds the prefix; its epoch.
    pub async fn held(&mut self) -> u64 {
        self.hold();
        self.until(|facts| match facts.lock {
            LockFacts::Held { epoch } if facts.batches_loaded => Some(epoch),
            _ => None,
        })
        .await
    }

    /// Plans, once the prefix is held.
    pub async fn planned(&mut self) -> PlanTotals {
        self.runners.plan(&self.job.uid);
        self.until(|facts| match &facts.plan {
            PlanFacts::Made(totals) => Some(totals.clone()),
            PlanFacts::Refused { reason, message } => panic!("{reason}: {message}"),
            _ => None,
        })
        .await
    }

    /// Plans, which is refused: the reason and the words.
    pub async fn refused(&mut self) -> (String, String) {
        self.runners.plan(&self.job.uid);
        self.until(|facts| match &facts.plan {
            PlanFacts::Made(totals) => panic!("{totals:?}"),
            PlanFacts::Refused { reason, message } => Some((reason.clone(), message.clone())),
            _ => None,
        })
        .await
    }

    /// Asks for an attempt at a batch; whether its file is there.
    pub fn ask(&self, batch: u32, attempt: u32, items: &[Item]) -> Result<bool, RunnerError> {
        let epoch = match self.facts().lock {
            LockFacts::Held { epoch } => epoch,
            _ => 0,
        };
        let attempt = Attempt {
            batch,
            attempt,
            items: items.to_vec(),
            epoch,
            tries: attempt - 1,
        };
        self.runners.start(&self.job.uid, &self.hold.run, &attempt)
    }

    /// Starts an attempt at a batch: asks for it until its file is there.
    pub async fn start(
        &mut self,
        batch: u32,
        attempt: u32,
        items: &[Item],
    ) -> Result<(), RunnerError> {
        // Written in the background: asked for again whenever there is news.
        while !self.ask(batch, attempt, items)? {
            let woken = tokio::time::timeout(DEADLINE, self.woken.recv()).await;
            woken.unwrap_or_else(|_| panic!("still {:#?}", self.facts()));
        }
        Ok(())
    }

    /// Settles an attempt: the items that were lost.
    pub async fn settled(&mut self, batch: u32, attempt: u32) -> Vec<Item> {
        self.runners.settle(&self.job.uid, batch, attempt, None);
        self.until(|facts| {
            let batch = facts.batches.iter().find(|known| known.batch == batch)?;
            let attempts = &batch.attempts;
            let attempt = attempts.iter().find(|known| known.attempt == attempt)?;
            Some(attempt.settled.clone()?.lost)
        })
        .await
    }

    /// Waits until so many items of an attempt have ended.
    pub async fn ended(&mut self, batch: u32, attempt: u32, items: u32) {
        self.until(|facts| {
            let batch = facts.batches.iter().find(|known| known.batch == batch)?;
            let attempts = &batch.attempts;
            let attempt = attempts.iter().find(|known| known.attempt == attempt)?;
            (attempt.ended == items).then_some(())
        })
        .await;
    }

    /// Seals: the totals, or what is missing.
    pub async fn sealed(&mut self) -> Result<SealTotals, (Vec<Item>, String)> {
        self.sealed_without(&[], None).await
    }

    /// Seals where these items are not tried again.
    pub async fn sealed_without(
        &mut self,
        items: &[Item],
        reason: Option<&str>,
    ) -> Result<SealTotals, (Vec<Item>, String)> {
        let given_up = GivenUp {
            items: items.to_vec(),
            reason: reason.map(str::to_owned),
        };
        self.runners.seal(&self.job.uid, vec![given_up]);
        self.until(|facts| match &facts.seal {
            SealFacts::Sealed(totals) => Some(Ok(totals.clone())),
            SealFacts::Missing { items, message } => Some(Err((items.clone(), message.clone()))),
            _ => None,
        })
        .await
    }

    /// Gives the prefix up, and waits until that is done.
    pub async fn released(&mut self) {
        self.runners.release(&self.job.uid);
        assert_eq!(self.facts().lock, LockFacts::Released);
        self.restart().await;
    }
}
