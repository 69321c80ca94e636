//! The operator's background work on one prefix: what it knows, and how it comes to know it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use operator::model::{
    AttemptFacts, BatchFacts, Item, LockFacts, PlanFacts, ProgressFacts, RunFacts, SealFacts,
    SealTotals, Settled,
};
use operator::sizing::ItemCosts;

use crate::bucket::{BatchFile, MATCHED, Prefix, ROWS, Report, RunFiles};
use crate::random::Random;

/// The work for one object.
#[derive(Clone, Debug)]
pub struct Runner {
    pub uid: String,
    pub run: String,
    pub prefix: String,
    digest: String,
    replaces: Vec<String>,
    skip_existing: bool,
    pub lock: LockFacts,
    plan: PlanFacts,
    is_plan_asked: bool,
    is_loaded: bool,
    batches: BTreeMap<(u32, u32), BatchFile>,
    reports: BTreeMap<u64, Report>,
    to_settle: BTreeSet<(u32, u32)>,
    settled: BTreeMap<(u32, u32), Settled>,
    is_seal_asked: bool,
    seal: SealFacts,
}

impl Runner {
    pub fn new(
        uid: &str,
        run: &str,
        prefix: &str,
        digest: &str,
        replaces: &[String],
        skip_existing: bool,
    ) -> Self {
        Self {
            uid: uid.to_owned(),
            run: run.to_owned(),
            prefix: prefix.to_owned(),
            digest: digest.to_owned(),
            replaces: replaces.to_vec(),
            skip_existing,
            lock: LockFacts::Idle,
            plan: PlanFacts::None,
            is_plan_asked: false,
            is_loaded: false,
            batches: BTreeMap::new(),
            reports: BTreeMap::new(),
            to_settle: BTreeSet::new(),
            settled: BTreeMap::new(),
            is_seal_asked: false,
            seal: SealFacts::None,
        }
    }

    pub fn ask_for_plan(&mut self) {
        self.is_plan_asked = true;
    }

    pub fn ask_to_settle(&mut self, batch: u32, attempt: u32) {
        if !self.settled.contains_key(&(batch, attempt)) {
            self.to_settle.insert((batch, attempt));
        }
    }

    pub fn ask_for_seal(&mut self) {
        self.is_seal_asked = true;
    }

    /// Writes the file of an attempt; `false` if it can't be.
    pub fn start(
        &mut self,
        prefix: &mut Prefix,
        batch: u32,
        attempt: u32,
        file: BatchFile,
    ) -> bool {
        let LockFacts::Held { epoch } = self.lock else {
            return false;
        };
        if prefix.lock.epoch != epoch || prefix.lock.holder.as_deref() != Some(&self.uid) {
            return false;
        }
        let files = prefix.runs.get_mut(&self.run).expect("the run is there");
        let found = files
            .batches
            .entry((batch, attempt))
            .or_insert_with(|| file.clone());
        let is_same = found.items == file.items;
        self.batches.insert((batch, attempt), found.clone());
        if matches!(self.seal, SealFacts::Missing { .. }) {
            self.seal = SealFacts::None;
            self.is_seal_asked = false;
        }
        is_same
    }

    pub fn release(self, prefix: &mut Prefix) {
        if prefix.lock.holder.as_deref() == Some(self.uid.as_str()) {
            prefix.lock.holder = None;
        }
    }

    /// Does one of the things that there are to do.
    pub fn step(&mut self, prefix: &mut Prefix, shards: u64, now_ms: i64, random: &mut Random) {
        self.look_at_lock(prefix, now_ms, random);
        if !matches!(self.lock, LockFacts::Held { .. }) {
            return;
        }
        match random.below(5) {
            0 => self.make_plan(prefix, shards, random),
            1 => self.load(prefix),
            2 => self.follow(prefix, random),
            3 => self.settle(prefix, now_ms),
            _ => self.make_seal(prefix, random),
        }
    }

    fn look_at_lock(&mut self, prefix: &mut Prefix, now_ms: i64, random: &mut Random) {
        let is_mine = prefix.lock.holder.as_deref() == Some(self.uid.as_str());
        match self.lock {
            LockFacts::Held { epoch } => {
                if !is_mine || prefix.lock.epoch != epoch || prefix.lock.run != self.run {
                    let by = prefix.lock.holder.clone().unwrap_or("somebody".to_owned());
                    *self = Self {
                        lock: LockFacts::Lost { by },
                        ..Self::new(
                            &self.uid,
                            &self.run,
                            &self.prefix,
                            &self.digest,
                            &self.replaces,
                            self.skip_existing,
                        )
                    };
                } else {
                    prefix.lock.renewed_ms = now_ms;
                }
            }
            LockFacts::Released => {}
            _ if random.in_thousand(300) => {
                if is_mine && prefix.lock.run == self.run {
                    prefix.lock.renewed_ms = now_ms;
                    self.hold(prefix);
                } else if is_mine || prefix.lock.is_free(now_ms) {
                    prefix.lock.renewed_ms = now_ms;
                    prefix.lock.holder = Some(self.uid.clone());
                    prefix.lock.run.clone_from(&self.run);
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
            .entry(self.run.clone())
            .or_insert_with(|| RunFiles {
                digest: self.digest.clone(),
                ..RunFiles::default()
            });
        assert_eq!(files.digest, self.digest, "a run has one pipeline");
    }

    fn make_plan(&mut self, prefix: &mut Prefix, shards: u64, random: &mut Random) {
        if matches!(self.plan, PlanFacts::Made(_) | PlanFacts::Refused { .. }) {
            return;
        }
        let is_there = prefix.runs[&self.run].plan.is_some();
        if !is_there && !self.is_plan_asked {
            return;
        }
        if random.in_thousand(300) {
            self.plan = PlanFacts::Going {
                listed: random.below(shards),
            };
            return;
        }
        let made = prefix.plan(&self.run, shards, &self.replaces, self.skip_existing);
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
            let files = &prefix.runs[&self.run];
            self.batches.clone_from(&files.batches);
            self.reports.clone_from(&files.reports);
            self.is_loaded = true;
        }
    }

    /// Some reports are read, others later.
    fn follow(&mut self, prefix: &Prefix, random: &mut Random) {
        for (first, report) in &prefix.runs[&self.run].reports {
            if random.in_thousand(600) {
                self.reports.insert(*first, report.clone());
            }
        }
    }

    fn settle(&mut self, prefix: &Prefix, now_ms: i64) {
        let files = &prefix.runs[&self.run];
        for (batch, attempt) in std::mem::take(&mut self.to_settle) {
            let Some(file) = self.batches.get(&(batch, attempt)) else {
                continue;
            };
            for item in &file.items {
                if let Some(report) = files.reports.get(&item.0) {
                    self.reports.insert(item.0, report.clone());
                }
            }
            let lost = file
                .items
                .iter()
                .copied()
                .filter(|item| !self.has_ended(*item, batch, attempt))
                .collect();
            let settled = Settled {
                lost,
                reason: None,
                is_permanent: false,
                at_ms: now_ms,
            };
            self.settled.insert((batch, attempt), settled);
        }
    }

    /// Whether the item's worker came to its end, in this attempt.
    fn has_ended(&self, item: Item, batch: u32, attempt: u32) -> bool {
        self.reports.get(&item.0).is_some_and(|report| {
            report.is_whole && report.batch == batch && report.attempt == attempt
        })
    }

    fn make_seal(&mut self, prefix: &mut Prefix, random: &mut Random) {
        if !self.is_seal_asked || matches!(self.seal, SealFacts::Missing { .. }) {
            return;
        }
        if random.in_thousand(300) {
            self.seal = SealFacts::Going { checked: 1 };
            return;
        }
        let files = &prefix.runs[&self.run];
        let plan = files.plan.as_ref().expect("sealed after planning");
        let items: Vec<Item> = files
            .reports
            .values()
            .filter(|report| {
                let is_gone = |chunk: &u64| !prefix.shards.contains_key(&plan[*chunk as usize]);
                report.done.iter().any(is_gone)
            })
            .map(|report| report.item)
            .collect();
        if !items.is_empty() {
            let message = format!("{} items lack shards", items.len());
            self.seal = SealFacts::Missing { items, message };
            return;
        }
        let shards = prefix.shards.len() as u64;
        self.seal = SealFacts::Sealed(SealTotals {
            shards,
            failed: files.totals.shards - shards,
            rows: shards * ROWS,
            matched: shards * MATCHED,
            failure_report: None,
            failures: Vec::new(),
        });
        prefix.has_sentinel = shards == files.totals.shards;
    }

    pub fn facts(&self, now_ms: i64) -> Arc<RunFacts> {
        let mut batches: BTreeMap<u32, BatchFacts> = BTreeMap::new();
        for ((batch, attempt), file) in &self.batches {
            let was_seen = file.items.iter().any(|item| {
                self.reports
                    .get(&item.0)
                    .is_some_and(|report| (report.batch, report.attempt) == (*batch, *attempt))
            });
            let ended = file
                .items
                .iter()
                .filter(|item| self.has_ended(**item, *batch, *attempt))
                .count() as u32;
            let facts = batches.entry(*batch).or_insert_with(|| BatchFacts {
                batch: *batch,
                attempts: Vec::new(),
            });
            facts.attempts.push(AttemptFacts {
                attempt: *attempt,
                items: file.items.clone(),
                epoch: file.epoch,
                tries: Some(file.tries),
                was_seen,
                ended,
                settled: self.settled.get(&(*batch, *attempt)).cloned(),
            });
        }
        Arc::new(RunFacts {
            run: self.run.clone(),
            lock: self.lock.clone(),
            plan: self.plan.clone(),
            batches: if self.is_loaded {
                batches.into_values().collect()
            } else {
                Vec::new()
            },
            batches_loaded: self.is_loaded,
            progress: self.progress(now_ms),
            seal: self.seal.clone(),
            silent: Vec::new(),
            trouble: None,
        })
    }

    fn progress(&self, now_ms: i64) -> ProgressFacts {
        let done: u64 = self
            .reports
            .values()
            .map(|report| report.done.len() as u64)
            .sum();
        let failed: u64 = self
            .reports
            .values()
            .map(|report| report.failed.len() as u64)
            .sum();
        let workers = self
            .reports
            .values()
            .filter(|report| !report.is_whole)
            .count();
        let mut costs = ItemCosts::default();
        for report in self.reports.values() {
            let worked = (report.done.len() + report.failed.len()) as u64;
            costs.add(worked, 1.0, worked, worked as f64);
        }
        ProgressFacts {
            done,
            failed,
            rows: done * ROWS,
            matched: done * MATCHED,
            nulls: BTreeMap::from([("score".to_owned(), (done * (ROWS - MATCHED), done * ROWS))]),
            row_errors: BTreeMap::new(),
            costs,
            window_shards: done,
            window_rows: done * ROWS,
            window_seconds: 60.0,
            window_workers: workers as u32,
            last_progress_ms: Some(now_ms),
            warnings: Vec::new(),
            failures: Vec::new(),
        }
    }
}
