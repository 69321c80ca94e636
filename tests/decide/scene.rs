//! A scene to decide about, and decisions as short texts.

use std::sync::Arc;

use crds::{SidecarJob, SidecarJobStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rules::build;
use rules::decide::{decide, report};
use rules::model::{
    Action, Asked, AttemptFacts, BatchFacts, Decision, GivenUpItems, Item, JobEnd, JobSpec,
    LockFacts, Observed, ObservedJob, ObservedPods, PlanFacts, PlanTotals, RunFacts, Settings,
    Settled,
};
use rules::names;
use serde_json::{Value, json};

pub const OUTPUT: &str = "s3://bucket/sidecar/";

/// When every scene begins.
pub const START: &str = "2025-06-01T10:15:00Z";

/// Everything that a decision rests on.
pub struct Scene {
    pub object: SidecarJob,
    pub facts: Option<RunFacts>,
    pub jobs: Vec<ObservedJob>,
    pub pods: ObservedPods,
    pub asked: Asked,
    pub settings: Settings,
    pub now: Timestamp,
    pub live_written_ms: Option<i64>,
    pub refusal: Option<rules::model::Refusal>,
    pub trouble: Option<rules::model::Trouble>,
    pub has_identity: bool,
    pub is_namespace_going: bool,
}

impl Scene {
    /// A new object without a canary; `changes` are merged into its spec.
    pub fn new(changes: Value) -> Self {
        let mut object = json!({
            "apiVersion": "sidecarjob.dev/v1alpha1",
            "kind": "SidecarJob",
            "metadata": {
                "name": "photos", "namespace": "team", "uid": "uid-1", "generation": 1,
            },
            "spec": {
                "dataset": {"mainPrefix": "s3://bucket/main", "keyColumn": "key"},
                "columns": [{"name": "score", "type": "float64"}],
                "pipeline": [
                    {"joinFromParquet": {"source": "s3://bucket/index/", "columns": ["score"]}},
                ],
                "output": {"prefix": OUTPUT},
                "throughput": {"maxWorkers": 4},
                "canary": {"shards": 0},
            },
        });
        merge(&mut object["spec"], changes);
        Self {
            object: serde_json::from_value(object).expect("an object"),
            facts: None,
            jobs: Vec::new(),
            pods: ObservedPods::default(),
            asked: Asked::default(),
            settings: Settings {
                worker_image: "worker:1".to_owned(),
                item_seconds: 100.0,
                items_per_job: 10,
                live_status_seconds: 15,
                window_seconds: 300,
                silent_seconds: 600,
                ..Settings::default()
            },
            now: START.parse().expect("a time"),
            live_written_ms: None,
            refusal: None,
            trouble: None,
            has_identity: false,
            is_namespace_going: false,
        }
    }

    /// An object whose run has begun, and whose lock is held in epoch 3.
    pub fn held(changes: Value) -> Self {
        let mut scene = Self::new(changes);
        scene.step();
        let run = scene.run();
        scene.facts = Some(RunFacts {
            run,
            lock: LockFacts::Held { epoch: 3 },
            ..RunFacts::default()
        });
        scene
    }

    /// One whose plan is made, with so many shards to make, and known.
    pub fn planned(todo: u64, changes: Value) -> Self {
        let mut scene = Self::held(changes);
        let facts = scene.facts();
        facts.plan = PlanFacts::Made(PlanTotals {
            shards: todo,
            todo,
            rows_per_shard: 512.0,
            ..PlanTotals::default()
        });
        facts.batches_loaded = true;
        scene.step();
        scene
    }

    pub fn facts(&mut self) -> &mut RunFacts {
        self.facts.as_mut().expect("facts")
    }

    pub fn status(&self) -> &SidecarJobStatus {
        self.object.status.as_ref().expect("a status")
    }

    pub fn run(&self) -> String {
        self.status().run.as_ref().expect("a run").name.clone()
    }

    pub fn observed(&self) -> Observed {
        Observed {
            object: Arc::new(self.object.clone()),
            jobs: self.jobs.clone(),
            pods: self.pods.clone(),
            asked: self.asked.clone(),
            run: self.facts.clone().map(Arc::new),
            refusal: self.refusal.clone(),
            has_identity: self.has_identity,
            is_namespace_going: self.is_namespace_going,
            trouble: self.trouble.clone(),
            live_written_ms: self.live_written_ms,
            random: 7,
            settings: Arc::new(self.settings.clone()),
        }
    }

    pub fn decide(&self) -> Decision {
        decide(&self.observed(), self.now)
    }

    /// What is decided could not be carried out; the status about it is written.
    pub fn fail(&mut self) -> Decision {
        let decision = report(&self.observed(), self.now);
        self.object.status.clone_from(&decision.status);
        decision
    }

    /// Decides, and has the status written.
    pub fn step(&mut self) -> Decision {
        let decision = self.decide();
        if let Some(status) = &decision.status {
            self.object.status = Some(status.clone());
        }
        decision
    }

    /// Decides, has the status written, and everything else done as it should be.
    pub fn act(&mut self) -> Decision {
        let decision = self.step();
        for action in &decision.actions {
            if let Action::Start {
                batch,
                attempt,
                items,
                epoch,
                tries,
                job,
                ..
            } = action
            {
                self.batch(*batch, *attempt, items, *epoch, *tries);
                let spec = job.spec.as_ref().expect("a spec");
                let parallelism = spec.parallelism.expect("set") as u32;
                let labels = job.metadata.labels.as_ref().expect("labels");
                let queue = labels.get(build::labels::QUEUE).cloned();
                self.job(*batch, *attempt, items.len() as u32, parallelism);
                let job = self.jobs.last_mut().expect("just added");
                job.is_suspended = queue.is_some();
                job.queue = queue;
            }
        }
        decision
    }

    /// Adds the file of an attempt.
    pub fn batch(&mut self, batch: u32, attempt: u32, items: &[Item], epoch: u64, tries: u32) {
        let facts = self.facts();
        if facts.batches.iter().all(|found| found.batch != batch) {
            facts.batches.push(BatchFacts {
                batch,
                ..BatchFacts::default()
            });
        }
        let found = facts.batches.iter_mut().find(|found| found.batch == batch);
        found.expect("just added").attempts.push(AttemptFacts {
            attempt,
            items: items.to_vec(),
            epoch,
            tries: Some(tries),
            ..AttemptFacts::default()
        });
    }

    /// Adds a Job that runs in epoch 3, and has made pods.
    pub fn job(&mut self, batch: u32, attempt: u32, completions: u32, parallelism: u32) {
        let run = self.run();
        self.jobs.push(ObservedJob {
            name: self.name(batch, attempt),
            uid: format!("uid-{batch}-{attempt}"),
            resource_version: "10".to_owned(),
            run,
            batch,
            attempt,
            epoch: 3,
            parallelism,
            completions,
            has_had_pods: true,
            ..ObservedJob::default()
        });
    }

    pub fn name(&self, batch: u32, attempt: u32) -> String {
        names::job_name("photos", "uid-1", &self.run(), batch, attempt)
    }

    /// Digest of the pod template of an attempt's Job, as the spec is now.
    pub fn template(&self, batch: u32, attempt: u32) -> String {
        let run = self.status().run.as_ref().expect("a run");
        let spec = JobSpec {
            name: self.name(batch, attempt),
            run: self.run(),
            batch,
            attempt,
            epoch: 3,
            completions: 4,
            parallelism: 2,
            suspend: false,
            prefix: OUTPUT.to_owned(),
            has_identity: self.has_identity,
            digest: run.pipeline_digest.clone().expect("a digest"),
            image: run.image.clone().expect("a pinned image"),
        };
        build::template_digest(&self.object, &spec, &self.settings)
    }

    /// The latest attempt at a batch.
    pub fn attempt(&mut self, batch: usize) -> &mut AttemptFacts {
        let attempts = &mut self.facts().batches[batch].attempts;
        attempts.last_mut().expect("an attempt")
    }

    /// All items of the latest attempt at a batch have ended, and were counted as done.
    pub fn finish(&mut self, batch: usize) {
        let attempt = self.attempt(batch);
        attempt.was_seen = true;
        attempt.ended = attempt.items.len() as u32;
        let items = attempt.items.clone();
        let done: u64 = items.iter().map(|item| item.1 - item.0).sum();
        let progress = &mut self.facts().progress;
        progress.done += done;
        progress.rows += done * 512;
        progress.matched += done * 500;
        for (first, end) in items {
            let shards = end - first;
            progress.costs.add(shards, 0.0, shards, shards as f64);
        }
    }

    /// The latest attempt at a batch is over, and has lost these.
    pub fn lose(&mut self, batch: usize, lost: &[Item]) {
        let attempt = self.attempt(batch);
        attempt.was_seen = true;
        attempt.settled = Some(Settled {
            lost: lost.to_vec(),
            lost_shards: lost.iter().map(|item| item.1 - item.0).sum(),
            ..Settled::default()
        });
    }

    /// Workers have said of these items of the latest attempt at a batch that they can't ever be
    /// done.
    pub fn despair(&mut self, batch: usize, items: &[Item], reason: &str) {
        let attempt = self.attempt(batch);
        attempt.was_seen = true;
        attempt.ended += items.len() as u32;
        self.facts().batches[batch].given_up = GivenUpItems {
            items: items.to_vec(),
            reason: Some(reason.to_owned()),
            is_permanent: true,
        };
        let shards: u64 = items.iter().map(|item| item.1 - item.0).sum();
        self.facts().progress.failed += shards;
    }

    /// The Job of a batch ends, as some of its indexes have failed.
    pub fn end(&mut self, job: usize) -> Decision {
        self.jobs[job].end = Some(JobEnd::Failed {
            reason: "FailedIndexes".to_owned(),
            message: String::new(),
        });
        self.step()
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Changes the spec, as `kubectl apply` does.
    pub fn apply(&mut self, changes: Value) {
        let mut spec = serde_json::to_value(&self.object.spec).expect("JSON");
        merge(&mut spec, changes);
        self.object.spec = serde_json::from_value(spec).expect("a spec");
        let generation = self.object.metadata.generation.unwrap_or(0);
        self.object.metadata.generation = Some(generation + 1);
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.object.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// The decision as lines: actions, phase, conditions.
    pub fn lines(&self, decision: &Decision) -> Vec<String> {
        let mut lines: Vec<String> = decision
            .actions
            .iter()
            .map(|action| self.action(action))
            .collect();
        let status = decision.status.as_ref().expect("a status");
        lines.push(format!("phase {}", status.phase.as_deref().unwrap_or("-")));
        lines.extend(status.conditions.iter().map(|condition| {
            format!(
                "{}={} {}",
                condition.type_, condition.status, condition.reason
            )
        }));
        lines
    }

    /// Only the actions, without `Hold`, which comes with every look at a run that goes on.
    pub fn actions(&self, decision: &Decision) -> Vec<String> {
        let others = decision
            .actions
            .iter()
            .filter(|action| !matches!(action, Action::Hold { .. }));
        others.map(|action| self.action(action)).collect()
    }

    fn action(&self, action: &Action) -> String {
        let whose = |name: &str| {
            let job = self.jobs.iter().find(|job| job.name == name);
            job.map_or_else(
                || name.to_owned(),
                |job| format!("{}/{}", job.batch, job.attempt),
            )
        };
        match action {
            Action::Hold { .. } => "Hold".to_owned(),
            Action::Plan => "Plan".to_owned(),
            Action::Start {
                batch,
                attempt,
                items,
                epoch,
                tries,
                job,
                after,
            } => {
                let spec = job.spec.as_ref().expect("a spec");
                let after = after
                    .as_ref()
                    .map_or_else(String::new, |name| format!(" after {}", whose(name)));
                format!(
                    "Start {batch}/{attempt} [{}] workers {} epoch {epoch} tries {tries}{after}",
                    ranges(items),
                    spec.parallelism.expect("set")
                )
            }
            Action::Scale {
                name, parallelism, ..
            } => format!("Scale {} to {parallelism}", whose(name)),
            Action::Suspend { name, suspend, .. } => {
                let what = if *suspend { "Suspend" } else { "Resume" };
                format!("{what} {}", whose(name))
            }
            Action::DeleteJob { name } => format!("Delete {}", whose(name)),
            Action::EndPod { name, .. } => format!("End {name}"),
            Action::Settle {
                batch,
                attempt,
                death,
            } => {
                let death = death.as_ref();
                let death = death.map_or_else(String::new, |words| format!(" ({words})"));
                format!("Settle {batch}/{attempt}{death}")
            }
            Action::Seal { given_up } => {
                let given_up = given_up.iter().map(|all| {
                    let reason = all.reason.as_deref().unwrap_or("no reason");
                    format!(" without {} ({reason})", ranges(&all.items))
                });
                format!("Seal{}", given_up.collect::<String>())
            }
            Action::Release => "Release".to_owned(),
            Action::Abandon { .. } => "Abandon".to_owned(),
            Action::DeleteObject => "DeleteObject".to_owned(),
        }
    }
}

fn ranges(items: &[Item]) -> String {
    let items = items.iter().map(|(first, end)| format!("{first}-{end}"));
    items.collect::<Vec<_>>().join(" ")
}

/// Reasons of events.
pub fn events(decision: &Decision) -> Vec<&'static str> {
    decision.events.iter().map(|event| event.reason).collect()
}

/// The condition of a type, as `status reason`.
pub fn condition(status: &SidecarJobStatus, kind: &str) -> Option<String> {
    let found = status.conditions.iter().find(|found| found.type_ == kind)?;
    Some(format!("{} {}", found.status, found.reason))
}

fn merge(into: &mut Value, changes: Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), change);
                }
            }
        }
        (into, changes) => *into = changes,
    }
}
