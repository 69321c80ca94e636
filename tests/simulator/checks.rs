//! What must hold at every moment.

use std::collections::{BTreeMap, BTreeSet};

use crds::SidecarJobStatus;
use rules::model::{Action, Decision, Observed};

use crate::bucket::Prefix;
use crate::cluster::Cluster;

/// Largest status, in bytes as JSON.
const LARGEST: usize = 24 * 1024;

#[derive(Debug, Default)]
pub struct Checks {
    pub seed: u64,
}

impl Checks {
    /// A decision is one that may be made.
    pub fn decision(&self, observed: &Observed, decision: &Decision) {
        let before = observed.object.status.as_ref();
        let run = |status: Option<&SidecarJobStatus>| {
            let run = status.and_then(|status| status.run.as_ref());
            run.map(|run| run.name.clone())
        };
        if run(before) != run(decision.status.as_ref()) {
            let seed = self.seed;
            assert!(
                decision.actions.is_empty(),
                "seed {seed}: a run begins by its name alone: {:?}",
                decision.actions
            );
        }
        let most = observed.object.spec.throughput.max_workers;
        for action in &decision.actions {
            if let Action::Start { job, .. } = action {
                let spec = job.spec.as_ref().expect("a Job has a spec");
                let parallelism = spec.parallelism.expect("set");
                assert!(
                    (1..=most).contains(&parallelism),
                    "seed {}: {parallelism} workers of {most}",
                    self.seed
                );
            }
        }
    }

    /// A status may come after the other.
    pub fn status(&self, uid: &str, before: Option<&SidecarJobStatus>, after: &SidecarJobStatus) {
        let seed = self.seed;
        let bytes = serde_json::to_string(after).expect("JSON").len();
        assert!(bytes < LARGEST, "seed {seed}: a status of {bytes} bytes");
        assert!(after.observed_generation.is_some());
        let Some(before) = before else { return };
        let is_same_run = match (&before.run, &after.run) {
            (Some(before), Some(after)) => before.name == after.name,
            _ => false,
        };
        if !is_same_run {
            return;
        }
        let has_ended = |status: &SidecarJobStatus| {
            status
                .run
                .as_ref()
                .is_some_and(|run| run.finished_at.is_some())
        };
        assert!(
            !has_ended(before) || has_ended(after),
            "seed {seed}: {uid}: a run that had ended goes on"
        );
        let counts = |status: &SidecarJobStatus| {
            let shards = status.shards.clone().unwrap_or_default();
            let rows = status.rows.clone().unwrap_or_default();
            (shards.total, shards.done, rows.written)
        };
        let (old, new) = (counts(before), counts(after));
        // The seal counts what is there, whatever was said before.
        let is_sealed = has_ended(after) && !has_ended(before);
        assert!(
            is_sealed || (old.0 <= new.0 && old.1 <= new.1 && old.2 <= new.2),
            "seed {seed}: {uid}: counts fell from {old:?} to {new:?}"
        );
        assert!(new.1 <= new.0, "seed {seed}: more done than there is");
    }

    /// Nobody gets in the way of anybody.
    pub fn workers(&self, cluster: &Cluster, prefixes: &BTreeMap<String, Prefix>) {
        for prefix in prefixes.values() {
            let Some(holder) = &prefix.lock.holder else {
                continue;
            };
            let Some(files) = prefix.runs.get(&prefix.lock.run) else {
                continue;
            };
            let able = cluster.jobs.values().filter(|job| {
                job.owner == *holder
                    && job.seen.run == prefix.lock.run
                    && job.seen.epoch == prefix.lock.epoch
            });
            let mut handed: BTreeSet<u64> = BTreeSet::new();
            let mut batches: BTreeSet<u32> = BTreeSet::new();
            for job in able {
                let file = &files.batches[&(job.seen.batch, job.seen.attempt)];
                let mut indexes: BTreeSet<usize> = BTreeSet::new();
                for pod in &job.pods {
                    assert!(indexes.insert(pod.index), "two pods of an index");
                    for chunk in file.items[pod.index].chunks() {
                        assert!(
                            handed.insert(chunk),
                            "seed {}: chunk {chunk} is with two workers",
                            self.seed
                        );
                    }
                }
                let is_live = !job.seen.is_deleting && job.seen.end.is_none();
                assert!(
                    !is_live || batches.insert(job.seen.batch),
                    "seed {}: batch {} has two live Jobs",
                    self.seed,
                    job.seen.batch
                );
            }
        }
    }
}
