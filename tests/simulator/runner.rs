//! The operator's background work on one prefix: what it knows, and how it comes to know it. What
//! reports say is kept in the operator's own book.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use operator::runner::book::Book;
use rules::model::{GivenUp, Item, LockFacts, PlanFacts, RunFacts, SealFacts, SealTotals};
use storage::state::batch::Batch;

use crate::bucket::{Line, MATCHED, Prefix, ROWS, RunFiles};
use crate::random::Random;
use crate::worker::time_of;

/// How often reports are looked at.
const FOLLOW_EVERY_MS: i64 = 5_000;

/// What the work is for.
#[derive(Clone, Debug)]
pub struct Hold {
    pub uid: String,
    pub run: String,
    pub prefix: String,
    pub digest: String,
    pub replaces: Vec<String>,
    pub skip_existing: bool,
    /// Over which time speed is measured.
    pub window: Duration,
}

/// The work for one object.
#[derive(Debug)]
pub struct Runner {
    pub hold: Hold,
    pub lock: LockFacts,
    plan: PlanFacts,
    is_plan_asked: bool,
    is_loaded: bool,
    book: Book,
    looks_again_ms: i64,
    to_settle: BTreeMap<(u32, u32), Option<String>>,
    seal_asked: Option<Vec<GivenUp>>,
    seal: SealFacts,
}

impl Runner {
    pub fn new(hold: Hold) -> Self {
        Self {
            book: Book::new(hold.window),
            hold,
            lock: LockFacts::Idle,
            plan: PlanFacts::None,
            is_plan_asked: false,
            is_loaded: false,
            looks_again_ms: 0,
            to_settle: BTreeMap::new(),
            seal_asked: None,
            seal: SealFacts::None,
        }
    }

    pub fn ask_for_plan(&mut self) {
        self.is_plan_asked = true;
    }

    pub fn ask_to_settle(&mut self, batch: u32, attempt: u32, death: Option<String>) {
        if self.book.ask_to_settle(batch, attempt) {
            self.to_settle.insert((batch, attempt), death);
        }
    }

    pub fn ask_for_seal(&mut self, given_up: Vec<GivenUp>) {
        self.seal_asked.get_or_insert(given_up);
    }

    /// Writes the file of an attempt; `false` if it can't be.
    pub fn start(&mut self, prefix: &mut Prefix, file: Batch) -> bool {
        let LockFacts::Held { epoch } = self.lock else {
            return false;
        };
        if prefix.lock.epoch != epoch || prefix.lock.holder.as_deref() != Some(&self.hold.uid) {
            return false;
        }
        let files = prefix.runs.get_mut(&self.hold.run);
        let files = files.expect("the run is there");
        let number = u32::try_from(file.batch).expect("a small number");
        let found = files.batches.entry((number, file.attempt));
        let found = found.or_insert_with(|| file.clone());
        let is_same = found.items == file.items;
        self.book.add_batch(found);
        if matches!(self.seal, SealFacts::Missing { .. }) {
            self.seal = SealFacts::None;
            self.seal_asked = None;
        }
        is_same
    }

    pub fn release(self, prefix: &mut Prefix) {
        if prefix.lock.holder.as_deref() == Some(self.hold.uid.as_str()) {
            prefix.lock.holder = None;
        }
    }

    /// Does one of the things that there are to do.
    pub fn step(&mut self, prefix: &mut Prefix, shards: u64, now_ms: i64, random: &mut Random) {
        self.look_at_lock(prefix, now_ms, random);
        if !matches!(self.lock, LockFacts::Held { .. }) {
            return;
        }
        if self.is_loaded && now_ms >= self.looks_again_ms {
            self.looks_again_ms = now_ms + FOLLOW_EVERY_MS;
            self.follow(prefix, now_ms);
        }
        match random.below(4) {
            0 => self.make_plan(prefix, shards, random),
            1 => self.load(prefix),
            2 => self.settle(prefix, now_ms),
            _ => self.make_seal(prefix, random),
        }
    }

    fn look_at_lock(&mut self, prefix: &mut Prefix, now_ms: i64, random: &mut Random) {
        let is_mine = prefix.lock.holder.as_deref() == Some(self.hold.uid.as_str());
        match self.lock {
            LockFacts::Held { epoch } => {
                if !is_mine || prefix.lock.epoch != epoch || prefix.lock.run != self.hold.run {
                    let by = prefix.lock.holder.clone().unwrap_or("somebody".to_owned());
                    *self = Self {
                        lock: LockFacts::Lost { by },
                        ..Self::new(self.hold.clone())
                    };
                } else {
                    prefix.lock.renewed_ms = now_ms;
                }
            }
            LockFacts::Released => {}
            _ if random.in_thousand(300) => {
                if is_mine && prefix.lock.run == self.hold.run {
                    prefix.lock.renewed_ms = now_ms;
                    self.hold(prefix);
                } else if is_mine || prefix.lock.is_free(now_ms) {
                    prefix.lock.renewed_ms = now_ms;
                    prefix.lock.holder = Some(self.hold.uid.clone());
                    prefix.lock.run.clone_from(&self.hold.run);
                    prefix.lock.epoch += 1;
                    self.hold(prefix);
                } else {
                    let holder = prefix.lock.holder.clone().unwrap_or_default();
                    self.lock = LockFacts::Waiting { holder };
                }
            }
            _ => {}
        }
    }

    fn hold(&mut self, prefix: &mut Prefix) {
        self.lock = LockFacts::Held {
            epoch: prefix.lock.epoch,
        };
        let files = prefix
            .runs
            .entry(self.hold.run.clone())
            .or_insert_with(|| RunFiles::of(&self.hold.digest));
        assert_eq!(files.digest, self.hold.digest, "a run has one pipeline");
    }

    fn make_plan(&mut self, prefix: &mut Prefix, shards: u64, random: &mut Random) {
        if matches!(self.plan, PlanFacts::Made(_) | PlanFacts::Refused { .. }) {
            return;
        }
        let is_there = prefix.runs[&self.hold.run].plan.is_some();
        if !is_there && !self.is_plan_asked {
            return;
        }
        if random.in_thousand(300) {
            self.plan = PlanFacts::Going {
                listed: random.below(shards),
            };
            return;
        }
        let made = prefix.plan(
            &self.hold.run,
            shards,
            &self.hold.replaces,
            self.hold.skip_existing,
        );
        self.plan = match made {
            Ok(totals) => PlanFacts::Made(totals),
            Err(message) => PlanFacts::Refused {
                reason: "PrefixConflict".to_owned(),
                message,
            },
        };
    }

    fn load(&mut self, prefix: &Prefix) {
        if !self.is_loaded && matches!(self.plan, PlanFacts::Made(_)) {
            let files = &prefix.runs[&self.hold.run];
            for file in files.batches.values() {
                self.book.add_batch(file);
            }
            let all = self.book.all();
            self.read(files, &all);
            self.book.rest();
            self.is_loaded = true;
        }
    }

    /// As the operator follows a run.
    fn follow(&mut self, prefix: &Prefix, now_ms: i64) {
        let unfinished = self.book.unfinished();
        if unfinished.is_empty() {
            return self.book.rest();
        }
        self.read(&prefix.runs[&self.hold.run], &unfinished);
        self.book.end_look(time_of(now_ms));
    }

    fn read(&mut self, files: &RunFiles, items: &[u64]) {
        for first in items {
            if let Some((etag, report)) = files.report_of(*first)
                && self.book.is_news(*first, etag)
            {
                self.book.add_report(*first, etag.clone(), Some(report));
            }
        }
    }

    fn settle(&mut self, prefix: &Prefix, now_ms: i64) {
        for ((batch, attempt), death) in std::mem::take(&mut self.to_settle) {
            let items = self.book.items_of(batch, attempt);
            self.read(&prefix.runs[&self.hold.run], &items);
            let now = time_of(now_ms);
            self.book.settle(batch, attempt, death.as_deref(), now);
        }
    }

    fn make_seal(&mut self, prefix: &mut Prefix, random: &mut Random) {
        let Some(given_up) = &self.seal_asked else {
            return;
        };
        if matches!(self.seal, SealFacts::Missing { .. }) {
            return;
        }
        if random.in_thousand(300) {
            self.seal = SealFacts::Going { checked: 1 };
            return;
        }
        let is_given_up = |item: &Item| given_up.iter().any(|all| all.items.contains(item));
        let files = &prefix.runs[&self.hold.run];
        let plan = files.plan.as_ref().expect("sealed after planning");
        let mut failed = 0;
        let mut missing: BTreeSet<Item> = BTreeSet::new();
        for (chunk, shard) in (0..).zip(plan) {
            let is_there = prefix.shards.contains_key(shard);
            match files.lines.get(&chunk) {
                Some(Line::Done) if is_there => {}
                Some(Line::Failed) => failed += 1,
                _ => {
                    let item = self
                        .book
                        .item_of(chunk)
                        .expect("every chunk was handed out");
                    if is_given_up(&item) {
                        failed += 1;
                    } else {
                        missing.insert(item);
                    }
                }
            }
        }
        if !missing.is_empty() {
            let message = format!("{} items lack shards", missing.len());
            self.seal = SealFacts::Missing {
                items: missing.into_iter().collect(),
                message,
            };
            return;
        }
        let shards = files.totals.shards - failed;
        self.seal = SealFacts::Sealed(SealTotals {
            shards,
            failed,
            rows: shards * ROWS,
            matched: shards * MATCHED,
            failure_report: None,
            failures: Vec::new(),
        });
        prefix.has_sentinel = failed == 0;
    }

    pub fn facts(&self) -> Arc<RunFacts> {
        Arc::new(RunFacts {
            run: self.hold.run.clone(),
            lock: self.lock.clone(),
            plan: self.plan.clone(),
            batches: if self.is_loaded {
                self.book.batches()
            } else {
                Vec::new()
            },
            batches_loaded: self.is_loaded,
            progress: self.book.progress(),
            seal: self.seal.clone(),
            silent: Vec::new(),
            trouble: None,
        })
    }
}
