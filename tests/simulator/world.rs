//! The world, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::SidecarJob;
use rules::build::labels;
use rules::model::{LockFacts, Settings};

use crate::bucket::Prefix;
use crate::checks::Checks;
use crate::cluster::Cluster;
use crate::process::{Done, Process, version};
use crate::random::Random;
use crate::spoilt::Spoil;
use crate::story::{Story, follows_changes};
use crate::worker::work_a_step;

/// Steps after which a world that was left in peace must have come to its end.
const MOST_STEPS: u64 = 60_000;

#[derive(Debug)]
pub struct World {
    pub story: Story,
    pub random: Random,
    pub settings: Arc<Settings>,
    pub now_ms: i64,
    pub step: u64,
    pub objects: BTreeMap<String, SidecarJob>,
    pub cluster: Cluster,
    pub prefixes: BTreeMap<String, Prefix>,
    pub process: Option<Process>,
    pub checks: Checks,
    /// What makes decisions worse than they are.
    pub spoil: Option<Spoil>,
    /// Whether a pipeline was changed.
    pub is_tampered: bool,
}

impl World {
    pub fn new(story: Story) -> Self {
        let objects = story
            .objects
            .iter()
            .map(|object| {
                let uid = object.metadata.uid.clone().expect("a uid");
                (uid, object.clone())
            })
            .collect();
        Self {
            random: story.random.clone(),
            settings: Arc::clone(&story.settings),
            now_ms: 1_750_000_000_000,
            step: 0,
            objects,
            cluster: Cluster::default(),
            prefixes: BTreeMap::new(),
            process: None,
            checks: Checks { seed: story.seed },
            spoil: None,
            is_tampered: false,
            story,
        }
    }

    fn is_troubled(&self) -> bool {
        self.step < self.story.troubled_steps
    }

    /// Whether the operator dies now, and makes it so.
    pub fn dies(&mut self) -> bool {
        let dies = self.story.troubles.crashes && self.is_troubled() && self.random.in_thousand(30);
        if dies {
            self.process = None;
        }
        self.process.is_none()
    }

    /// Lives through the story.
    pub fn run(&mut self) {
        while self.is_troubled() || !self.has_ended() {
            self.live();
            assert!(
                self.step < MOST_STEPS,
                "seed {}: no end:\n{}",
                self.story.seed,
                self.describe()
            );
        }
        self.settle_down();
        self.judge();
    }

    fn live(&mut self) {
        self.step += 1;
        self.now_ms += self.random.between(50, 2_000) as i64;
        if self.step == self.story.troubled_steps {
            self.leave_in_peace();
        }
        match self.random.below(20) {
            0..=4 => {
                let uid = self.any_object();
                self.reconcile(&uid);
            }
            5..=12 => self.work_in_background(),
            13..=14 => self.watch(600),
            15..=18 => self.control(),
            _ => self.queue(),
        }
        self.work();
        if self.process.is_none() && self.random.in_thousand(200) {
            self.process = Some(Process::default());
            self.watch(1_000);
        }
        if self.is_troubled() {
            self.trouble();
        }
        self.checks.workers(&self.cluster, &self.prefixes);
    }

    pub fn any_object(&mut self) -> String {
        let uids: Vec<&String> = self.objects.keys().collect();
        let position = self.random.below(uids.len() as u64) as usize;
        uids[position].clone()
    }

    fn work_in_background(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        for runner in process.runners.values_mut() {
            let prefix = self.prefixes.entry(runner.hold.prefix.clone()).or_default();
            runner.step(prefix, self.story.shards, self.now_ms, &mut self.random);
        }
    }

    /// The watches tell of some of what has changed.
    fn watch(&mut self, in_thousand: u64) {
        let Some(process) = &mut self.process else {
            return;
        };
        let names: BTreeSet<String> = process
            .jobs
            .keys()
            .chain(self.cluster.jobs.keys())
            .cloned()
            .collect();
        for name in names {
            if !self.random.in_thousand(in_thousand) {
                continue;
            }
            match self.cluster.jobs.get(&name) {
                Some(job) => {
                    let seen = (job.owner.clone(), job.seen.clone());
                    process.jobs.insert(name, seen);
                }
                None => {
                    process.jobs.remove(&name);
                }
            }
        }
        for (uid, object) in &self.objects {
            if self.random.in_thousand(in_thousand) {
                process.objects.insert(uid.clone(), object.clone());
            }
        }
    }

    pub fn any_job(&mut self) -> Option<String> {
        let names: Vec<&String> = self.cluster.jobs.keys().collect();
        if names.is_empty() {
            return None;
        }
        let position = self.random.below(names.len() as u64) as usize;
        Some(names[position].clone())
    }

    fn control(&mut self) {
        if let Some(name) = self.any_job() {
            let pod_ms = self.story.costs.pod;
            self.cluster
                .control(&name, pod_ms, self.now_ms, &mut self.random);
        }
    }

    /// The queue lets Jobs in, and sometimes takes its room back.
    fn queue(&mut self) {
        let Some(name) = self.any_job() else { return };
        let version = self.cluster.version();
        let takes_back = self.is_troubled() && self.random.in_thousand(100);
        if let Some(job) = self.cluster.jobs.get_mut(&name)
            && job.seen.queue.is_some()
        {
            job.seen.is_suspended = takes_back;
            job.seen.resource_version = version;
        }
    }

    /// All workers do what they have come to by now, each on its own.
    fn work(&mut self) {
        let now_ms = self.now_ms;
        for job in self.cluster.jobs.values_mut() {
            let output = self
                .prefixes
                .values_mut()
                .find(|prefix| prefix.runs.contains_key(&job.seen.run));
            let prefix = output.expect("the prefix of a run");
            let mut position = 0;
            while position < job.pods.len() {
                let next_ms = job.pods[position].next_ms;
                if next_ms > now_ms {
                    position += 1;
                    continue;
                }
                let (faults, costs) = (&mut self.story.faults, self.story.costs);
                let random = &mut self.random;
                if let Some(end) = work_a_step(job, position, prefix, faults, costs, random) {
                    job.ended(position, end, next_ms);
                }
            }
        }
    }

    /// From here on nothing happens but what the operator does.
    fn leave_in_peace(&mut self) {
        for prefix in self.prefixes.values_mut() {
            if prefix.lock.holder.as_deref() == Some("laptop") {
                prefix.lock.holder = None;
            }
        }
        for object in self.objects.values_mut() {
            if object.spec.suspend {
                object.spec.suspend = false;
                changed(object);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.objects.values().all(|object| {
            let Some(status) = &object.status else {
                return false;
            };
            let has_finished = status
                .run
                .as_ref()
                .is_some_and(|run| run.finished_at.is_some());
            let annotations = object.metadata.annotations.as_ref();
            let token =
                annotations.and_then(|annotations| annotations.get(labels::RERUN_REQUESTED_AT));
            let is_handled = token.is_none() || token == status.last_handled_rerun.as_ref();
            let is_current = status.observed_generation == object.metadata.generation;
            has_finished && is_handled && is_current
        })
    }

    /// What comes after the end: Jobs go, the lock is given up, and then nothing at all.
    fn settle_down(&mut self) {
        let seed = self.story.seed;
        for _ in 0..400 {
            self.live();
        }
        assert!(
            self.has_ended(),
            "seed {seed}: it began again:\n{}",
            self.describe()
        );
        assert_eq!(self.look_often(), Done::default(), "seed {seed}: no rest");
        self.process = Some(Process::default());
        self.cluster.jobs.clear();
        assert_eq!(
            self.look_often(),
            Done::default(),
            "seed {seed}: no rest after a restart"
        );
    }

    fn look_often(&mut self) -> Done {
        let mut done = Done::default();
        let uids: Vec<String> = self.objects.keys().cloned().collect();
        for _ in 0..10 {
            self.watch(1_000);
            self.work_in_background();
            self.now_ms += 60_000;
            for uid in &uids {
                let more = self.reconcile(uid);
                done.actions += more.actions;
                done.status_writes += more.status_writes;
            }
        }
        done
    }

    /// Status and output agree, and the end is one that the story explains.
    fn judge(&self) {
        let seed = self.story.seed;
        assert!(self.cluster.jobs.is_empty(), "seed {seed}: Jobs are left");
        for (uid, object) in &self.objects {
            let status = object.status.as_ref().expect("ended");
            let output = status.output.as_deref().expect("an output");
            let prefix = &self.prefixes[output];
            let is_mine = prefix.lock.holder.as_deref() == Some(uid.as_str());
            assert!(
                !is_mine || prefix.lock.is_free(self.now_ms),
                "seed {seed}: locked"
            );
            let condition = |kind: &str| {
                let condition = status.conditions.iter().find(|found| found.type_ == kind);
                condition.map(|found| (found.status.as_str(), found.reason.as_str()))
            };
            assert_eq!(condition("Reconciling"), None, "seed {seed}");
            let is_complete = condition("Complete").is_some();
            assert_ne!(is_complete, condition("Failed").is_some(), "seed {seed}");
            let reason = condition("Complete")
                .or(condition("Failed"))
                .map(|(_, reason)| reason);
            let reason = reason.expect("an end has a reason");
            if self.is_alone() && self.must_succeed(object) {
                assert_eq!(reason, "Completed", "seed {seed}: {}", self.describe());
            }
            if is_complete && self.is_alone() {
                let shards = status.shards.as_ref().expect("counted");
                let there = prefix.shards.len() as i64;
                // A worker that died has not recorded what it had published.
                if self.has_deaths() {
                    assert!(shards.done <= there, "seed {seed}: {}", self.describe());
                } else {
                    assert_eq!(shards.done, there, "seed {seed}: {}", self.describe());
                }
                assert_eq!(shards.total, self.story.shards as i64, "seed {seed}");
                assert_eq!(shards.failed, shards.total - shards.done, "seed {seed}");
                let accepted = object.spec.failure_policy.max_failed_shards;
                assert!(shards.failed <= accepted, "seed {seed}: {shards:?}");
                let digest = status
                    .run
                    .as_ref()
                    .and_then(|run| run.pipeline_digest.clone());
                assert!(
                    prefix
                        .shards
                        .values()
                        .all(|found| Some(found) == digest.as_ref()),
                    "seed {seed}: a shard of another pipeline"
                );
                assert_eq!(prefix.has_sentinel, shards.failed == 0, "seed {seed}");
            }
            let is_objected =
                condition("Stalled").is_some_and(|(_, reason)| reason == "SpecChangedAfterStart");
            assert!(
                !is_objected || !follows_changes(object),
                "seed {seed}: a change that was to be followed was not"
            );
        }
    }

    /// Of two objects on one prefix the later may replace, or be refused for, what the other made.
    fn is_alone(&self) -> bool {
        self.objects.len() == 1
    }

    fn has_deaths(&self) -> bool {
        self.story.troubles.kills || !self.story.faults.deadly.is_empty()
    }

    /// Whether nothing happened that may cost a shard: no bad shards, no deaths. The loss of a lock,
    /// a suspension, fewer workers, a queue that takes its room back, Jobs and pods that somebody
    /// deletes, and a crash of the operator cost nothing.
    fn must_succeed(&self, object: &SidecarJob) -> bool {
        let troubles = self.story.troubles;
        let faults = &self.story.faults;
        faults.poison.is_empty()
            && faults.hopeless.is_empty()
            && !self.has_deaths()
            && !troubles.vanishing
            && (!self.is_tampered || follows_changes(object))
            && object.spec.canary.min_match_rate.is_none()
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for object in self.objects.values() {
            text += &serde_json::to_string_pretty(object).expect("JSON");
        }
        for (name, job) in &self.cluster.jobs {
            text += &format!("\n{name}: {:?} {} pods", job.seen, job.pods.len());
        }
        for (name, prefix) in &self.prefixes {
            text += &format!(
                "\n{name}: {:?}, {} shards",
                prefix.lock,
                prefix.shards.len()
            );
        }
        if let Some(process) = &self.process {
            for runner in process.runners.values() {
                let facts = runner.facts();
                let is_held = matches!(facts.lock, LockFacts::Held { .. });
                text += &format!("\nrunner {} held {is_held}: {facts:#?}", runner.hold.run);
            }
        }
        text
    }
}

pub fn changed(object: &mut SidecarJob) {
    let generation = object.metadata.generation.unwrap_or(0);
    object.metadata.generation = Some(generation + 1);
    object.metadata.resource_version = Some((version(object) + 1).to_string());
}
