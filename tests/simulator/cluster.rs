//! Jobs, pods and the Job controller, as far as they matter.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use operator::build::labels;
use operator::model::{JobEnd, ObservedJob, ObservedPods};

use crate::random::Random;

/// Tries of an index beyond the first, as the Job says.
const RETRIES: u32 = 2;

/// A worker.
#[derive(Clone, Debug)]
pub struct Pod {
    pub index: usize,
    pub is_running: bool,
    /// The chunk that comes next; from the beginning for each pod.
    pub next: u64,
    /// What it has done, as it will report it.
    pub done: BTreeSet<u64>,
    pub failed: BTreeSet<u64>,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    Done,
    SomeFailed,
    LockLost,
    Killed,
    Evicted,
}

/// A Job as the API server has it.
#[derive(Clone, Debug)]
pub struct SimJob {
    pub owner: String,
    pub seen: ObservedJob,
    pub pods: Vec<Pod>,
    pub done: BTreeSet<usize>,
    pub failed: BTreeSet<usize>,
    pub tries: BTreeMap<usize, u32>,
}

/// All Jobs.
#[derive(Debug, Default)]
pub struct Cluster {
    pub jobs: BTreeMap<String, SimJob>,
    version: u64,
    /// Names that were ever created, with what for.
    pub created: BTreeMap<String, (String, u32, u32)>,
}

impl Cluster {
    pub fn version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Creates a Job; `false` if there is one of that name that is going.
    pub fn create(&mut self, owner: &str, job: &Job) -> bool {
        let name = job.metadata.name.clone().expect("a Job has a name");
        if let Some(found) = self.jobs.get(&name) {
            return !found.seen.is_deleting;
        }
        let label = |key: &str| job.metadata.labels.as_ref().expect("labels")[key].clone();
        let spec = job.spec.as_ref().expect("a Job has a spec");
        let number = |number: Option<i32>| u32::try_from(number.expect("set")).expect("positive");
        let seen = ObservedJob {
            name: name.clone(),
            uid: format!("uid of {name}"),
            resource_version: self.version(),
            run: label(labels::RUN),
            batch: label(labels::BATCH).parse().expect("a number"),
            attempt: label(labels::ATTEMPT).parse().expect("a number"),
            epoch: label(labels::EPOCH).parse().expect("a number"),
            is_suspended: spec.suspend == Some(true),
            queue: job
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(labels::QUEUE).cloned()),
            parallelism: number(spec.parallelism),
            completions: number(spec.completions),
            ..ObservedJob::default()
        };
        let what = (seen.run.clone(), seen.batch, seen.attempt);
        let former = self.created.insert(name.clone(), what.clone());
        assert!(
            former.is_none_or(|former| former == what),
            "{name} was used for something else"
        );
        let job = SimJob {
            owner: owner.to_owned(),
            seen,
            pods: Vec::new(),
            done: BTreeSet::new(),
            failed: BTreeSet::new(),
            tries: BTreeMap::new(),
        };
        self.jobs.insert(name, job);
        true
    }

    pub fn delete(&mut self, name: &str) {
        let version = self.version();
        if let Some(job) = self.jobs.get_mut(name) {
            job.seen.is_deleting = true;
            job.seen.resource_version = version;
        }
    }

    /// One step of the Job controller, for one Job.
    pub fn control(&mut self, name: &str, random: &mut Random) {
        let version = self.version();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if job.seen.is_deleting {
            job.pods.clear();
            if random.in_thousand(500) {
                self.jobs.remove(name);
            }
            return;
        }
        if job.seen.end.is_some() {
            return;
        }
        if job.seen.is_suspended {
            job.pods.clear();
        } else {
            job.fill(random);
        }
        let completions = job.seen.completions as usize;
        if job.done.len() == completions {
            job.seen.end = Some(JobEnd::Complete);
        } else if job.done.len() + job.failed.len() == completions {
            job.end_badly("FailedIndexes");
        }
        job.seen.active = job.pods.len() as u32;
        job.seen.has_had_pods |= job.seen.active > 0;
        job.seen.ready = job.pods.iter().filter(|pod| pod.is_running).count() as u32;
        job.seen.succeeded = job.done.len() as u32;
        job.seen.failed_indexes = job.failed.len() as u32;
        job.seen.resource_version = version;
    }

    pub fn pods(&self, owner: &str) -> ObservedPods {
        let pods: Vec<&Pod> = self
            .jobs
            .values()
            .filter(|job| job.owner == owner)
            .flat_map(|job| &job.pods)
            .collect();
        let ready = pods.iter().filter(|pod| pod.is_running).count() as u32;
        ObservedPods {
            live: pods.len() as u32,
            ready,
            pending: pods.len() as u32 - ready,
            ..ObservedPods::default()
        }
    }
}

impl SimJob {
    fn fill(&mut self, random: &mut Random) {
        let taken: BTreeSet<usize> = self.pods.iter().map(|pod| pod.index).collect();
        let open: Vec<usize> = (0..self.seen.completions as usize)
            .filter(|index| {
                !taken.contains(index) && !self.done.contains(index) && !self.failed.contains(index)
            })
            .collect();
        let parallelism = self.seen.parallelism as usize;
        if self.pods.len() < parallelism && !open.is_empty() {
            self.pods.push(Pod {
                index: random.pick(&open),
                is_running: false,
                next: 0,
                done: BTreeSet::new(),
                failed: BTreeSet::new(),
            });
        }
        while self.pods.len() > parallelism {
            let victim = random.below(self.pods.len() as u64) as usize;
            self.pods.remove(victim);
        }
    }

    pub fn end_badly(&mut self, reason: &str) {
        self.pods.clear();
        self.seen.end = Some(JobEnd::Failed {
            reason: reason.to_owned(),
            message: "some indexes failed".to_owned(),
        });
    }

    /// A pod has ended.
    pub fn ended(&mut self, position: usize, exit: Exit) {
        let pod = self.pods.remove(position);
        match exit {
            Exit::Done => {
                self.done.insert(pod.index);
            }
            Exit::SomeFailed => {
                self.failed.insert(pod.index);
            }
            Exit::LockLost => self.end_badly("PodFailurePolicy"),
            Exit::Killed => {
                let tries = self.tries.entry(pod.index).or_default();
                *tries += 1;
                if *tries > RETRIES {
                    self.failed.insert(pod.index);
                }
            }
            Exit::Evicted => {}
        }
    }
}
