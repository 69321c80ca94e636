//! What gets in the way.

use crds::SourceInference;
use rules::build::labels;
use rules::model::SealFacts;

use crate::bucket::Line;
use crate::cluster::End;
use crate::world::{World, changed};

impl World {
    pub fn trouble(&mut self) {
        let troubles = self.story.troubles;
        if troubles.kills && self.random.in_thousand(10) {
            self.kill_a_worker();
        }
        if troubles.deletions && self.random.in_thousand(10) {
            self.end_a_pod();
        }
        if troubles.deletions
            && self.random.in_thousand(3)
            && let Some(name) = self.any_job()
        {
            self.cluster.delete(&name);
        }
        if troubles.thefts && self.random.in_thousand(15) {
            self.steal_or_return();
        }
        if troubles.people && self.random.in_thousand(4) {
            self.change_an_object();
        }
        if troubles.vanishing && self.random.in_thousand(4) {
            self.lose_a_shard();
        }
    }

    /// A worker that runs, if there is one.
    fn any_worker(&mut self) -> Option<(String, usize)> {
        let name = self.any_job()?;
        let pods = self.cluster.jobs[&name].pods.iter();
        let running = pods.enumerate().filter(|(_, pod)| pod.worker.is_some());
        let positions: Vec<usize> = running.map(|(position, _)| position).collect();
        (!positions.is_empty()).then(|| (name, self.random.pick(&positions)))
    }

    fn kill_a_worker(&mut self) {
        let now_ms = self.now_ms;
        if let Some((name, position)) = self.any_worker()
            && let Some(job) = self.cluster.jobs.get_mut(&name)
        {
            job.ended(position, End::Exit(137), now_ms);
        }
    }

    /// The cluster ends a pod, or a person does, who says nothing of it in its conditions.
    fn end_a_pod(&mut self) {
        let is_evicted = self.random.in_thousand(500);
        let now_ms = self.now_ms;
        if let Some((name, position)) = self.any_worker()
            && let Some(job) = self.cluster.jobs.get_mut(&name)
        {
            if is_evicted {
                job.ended(position, End::Disrupted, now_ms);
            } else {
                job.stop(position, now_ms);
            }
        }
    }

    /// Somebody takes a lock over, or gives it back.
    fn steal_or_return(&mut self) {
        for prefix in self.prefixes.values_mut() {
            let lock = &mut prefix.lock;
            if lock.holder.as_deref() == Some("laptop") {
                lock.holder = None;
            } else if self.random.in_thousand(500) {
                lock.holder = Some("laptop".to_owned());
                lock.run = "20250101-000000-222222".to_owned();
                lock.renewed_ms = i64::MAX / 2;
                lock.epoch += 1;
            }
        }
    }

    fn change_an_object(&mut self) {
        let uid = self.any_object();
        let step = self.step;
        let what = self.random.below(5);
        let workers = self.random.between(1, 12) as i32;
        let mode = self.random.pick(&["failed-only", "all"]);
        let Some(object) = self.objects.get_mut(&uid) else {
            return;
        };
        match what {
            0 | 1 => object.spec.suspend = !object.spec.suspend,
            2 => object.spec.throughput.max_workers = workers,
            3 => {
                let annotations = object.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::RERUN_REQUESTED_AT.to_owned(), step.to_string());
                annotations.insert(labels::RERUN_MODE.to_owned(), mode.to_owned());
            }
            _ => {
                object.spec.dataset.sources = match object.spec.dataset.sources {
                    None => Some(SourceInference {
                        markers: Vec::new(),
                        default: Some("a".to_owned()),
                    }),
                    Some(_) => None,
                };
                self.is_tampered = true;
            }
        }
        changed(object);
    }

    /// A shard that this run has made goes, before the run is sealed.
    fn lose_a_shard(&mut self) {
        let is_active = self.objects.values().any(|object| {
            let run = object
                .status
                .as_ref()
                .and_then(|status| status.run.as_ref());
            run.is_some_and(|run| run.finished_at.is_none())
        });
        let is_sealed = self.process.as_ref().is_none_or(|process| {
            process.runners.values().any(|runner| {
                let facts = runner.facts();
                matches!(facts.seal, SealFacts::Sealed(_))
            })
        });
        if !is_active || is_sealed {
            return;
        }
        for prefix in self.prefixes.values_mut() {
            let Some(files) = prefix.runs.get(&prefix.lock.run) else {
                continue;
            };
            let Some(plan) = &files.plan else { continue };
            let lines = files.lines.iter();
            let made: Vec<u64> = lines
                .filter(|(_, line)| **line == Line::Done)
                .map(|(chunk, _)| plan[*chunk as usize])
                .collect();
            if !made.is_empty() {
                let shard = self.random.pick(&made);
                prefix.shards.remove(&shard);
            }
        }
    }
}
