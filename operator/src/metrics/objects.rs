//! The numbers of one SidecarJob.

use std::collections::BTreeMap;

use crds::SidecarJob;
use prometheus::{CounterVec, GaugeVec, Registry};
use rules::model::RunFacts;

use super::{MetricError, gauges, register_counters, seconds};
use crate::watch::ObjectKey;

/// The numbers of a SidecarJob: what its background work says now, and its status for all else.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectNumbers {
    key: ObjectKey,
    /// Shards: done, kept, failed, remaining.
    shards: Option<[i64; 4]>,
    completed: Option<u64>,
    rows: Option<u64>,
    row_errors: BTreeMap<String, u64>,
    observed_rate: f64,
    target_rate: Option<f64>,
    match_ratio: Option<f64>,
    /// Workers: desired, ready, pending.
    workers: [i32; 3],
    last_progress_ms: Option<i64>,
    conditions: Vec<(String, String)>,
}

impl ObjectNumbers {
    /// What is known of `object`; `facts` if they are about the run in its status.
    pub fn new(key: ObjectKey, object: &SidecarJob, facts: Option<&RunFacts>) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let run = status.run.as_ref().map(|run| run.name.as_str());
        let progress = facts
            .filter(|facts| Some(facts.run.as_str()) == run)
            // Before the reports were read its sums are zero: a counter that jumped from there to
            // what was done long ago would look like a burst.
            .filter(|facts| facts.batches_loaded)
            .map(|facts| &facts.progress);
        let shards = status.shards.as_ref().map(|shards| {
            let (done, failed) = match progress {
                Some(progress) => (
                    shards.kept.saturating_add(whole(progress.done)),
                    whole(progress.failed),
                ),
                None => (shards.done, shards.failed),
            };
            let done = done.max(shards.done);
            let remaining = shards.total.saturating_sub(done).saturating_sub(failed);
            [done, shards.kept, failed, remaining.max(0)]
        });
        let workers = status.workers.unwrap_or_default();
        // Of a run that nobody works on the last window says nothing.
        let observed_rate = progress
            .filter(|progress| workers.desired > 0 && progress.window_seconds > 0.0)
            .map_or(0.0, |progress| {
                progress.window_shards as f64 / progress.window_seconds
            });
        let rows = status.rows.as_ref();
        let match_ratio = rows
            .filter(|rows| rows.looked_up > 0)
            .map(|rows| rows.matched as f64 / rows.looked_up as f64);
        Self {
            key,
            shards,
            completed: progress.map(|progress| progress.done),
            rows: progress.map(|progress| progress.rows),
            row_errors: progress.map_or_else(BTreeMap::new, |now| now.row_errors.clone()),
            observed_rate,
            target_rate: status
                .sizing
                .and_then(|sizing| sizing.target_shards_per_second),
            match_ratio,
            workers: [workers.desired, workers.ready, workers.pending],
            last_progress_ms: progress.and_then(|progress| progress.last_progress_ms),
            conditions: status
                .conditions
                .into_iter()
                .map(|condition| (condition.type_, condition.status))
                .collect(),
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

struct Families {
    shards: GaugeVec,
    completed: CounterVec,
    rows: CounterVec,
    row_errors: CounterVec,
    observed_rate: GaugeVec,
    target_rate: GaugeVec,
    match_ratio: GaugeVec,
    workers: GaugeVec,
    last_progress: GaugeVec,
    condition: GaugeVec,
}

/// Adds the numbers of all objects to a scrape.
pub(super) fn export(
    registry: &Registry,
    objects: impl Iterator<Item = ObjectNumbers>,
) -> Result<(), MetricError> {
    let families = Families {
        shards: gauges(registry, "sidecarjob_shards")?,
        completed: register_counters(registry, "sidecarjob_shards_completed_total")?,
        rows: register_counters(registry, "sidecarjob_rows_total")?,
        row_errors: register_counters(registry, "sidecarjob_row_errors_total")?,
        observed_rate: gauges(registry, "sidecarjob_observed_shards_per_second")?,
        target_rate: gauges(registry, "sidecarjob_target_shards_per_second")?,
        match_ratio: gauges(registry, "sidecarjob_match_ratio")?,
        workers: gauges(registry, "sidecarjob_workers")?,
        last_progress: gauges(registry, "sidecarjob_last_progress_timestamp_seconds")?,
        condition: gauges(registry, "sidecarjob_condition")?,
    };
    for object in objects {
        families.add(&object);
    }
    Ok(())
}

impl Families {
    fn add(&self, object: &ObjectNumbers) {
        let (namespace, name) = (object.key.namespace.as_str(), object.key.name.as_str());
        let labels = [namespace, name];
        let states = ["done", "kept", "failed", "remaining"];
        for (state, count) in states.iter().zip(object.shards.iter().flatten()) {
            let gauge = self.shards.with_label_values(&[namespace, name, state]);
            gauge.set(*count as f64);
        }
        if let Some(completed) = object.completed {
            let counter = self.completed.with_label_values(&labels);
            counter.inc_by(completed as f64);
        }
        if let Some(rows) = object.rows {
            self.rows.with_label_values(&labels).inc_by(rows as f64);
        }
        for (reason, rows) in &object.row_errors {
            let labels = [namespace, name, reason.as_str()];
            self.row_errors
                .with_label_values(&labels)
                .inc_by(*rows as f64);
        }
        let observed = self.observed_rate.with_label_values(&labels);
        observed.set(object.observed_rate);
        if let Some(rate) = object.target_rate {
            self.target_rate.with_label_values(&labels).set(rate);
        }
        if let Some(ratio) = object.match_ratio {
            self.match_ratio.with_label_values(&labels).set(ratio);
        }
        for (state, count) in ["desired", "ready", "pending"].iter().zip(object.workers) {
            let gauge = self.workers.with_label_values(&[namespace, name, state]);
            gauge.set(f64::from(count));
        }
        if let Some(time) = object.last_progress_ms {
            let gauge = self.last_progress.with_label_values(&labels);
            gauge.set(seconds(time));
        }
        for (kind, status) in &object.conditions {
            let labels = [namespace, name, kind.as_str(), status.as_str()];
            self.condition.with_label_values(&labels).set(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use rules::model::ProgressFacts;

    /// What a new leader knows before it has read the reports is not that nothing was done.
    #[test]
    fn counters_are_absent_until_the_reports_were_read() {
        let object: SidecarJob = serde_json::from_value(json!({
            "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
            "metadata": {"name": "photos", "namespace": "team"},
            "spec": {
                "dataset": {"mainPrefix": "s3://bucket/main", "keyColumn": "key"},
                "pipeline": [{"extractScaffold": {}}],
            },
            "status": {
                "run": {"name": "run-1"},
                "shards": {"total": 100, "done": 90, "kept": 0, "failed": 0},
            },
        }))
        .unwrap();
        let numbers = |done, batches_loaded| {
            let facts = RunFacts {
                run: "run-1".to_owned(),
                progress: ProgressFacts {
                    done,
                    rows: done * 512,
                    ..ProgressFacts::default()
                },
                batches_loaded,
                ..RunFacts::default()
            };
            let key = ObjectKey::of(&object.metadata);
            ObjectNumbers::new(key, &object, Some(&facts))
        };
        let fresh = numbers(0, false);
        assert_eq!((fresh.completed, fresh.rows), (None, None));
        assert_eq!(fresh.shards, Some([90, 0, 0, 10]));
        let read = numbers(91, true);
        assert_eq!((read.completed, read.rows), (Some(91), Some(91 * 512)));
    }
}
