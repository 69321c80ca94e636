//! Jobs, pods and the Job controller, as far as they matter.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job as KubernetesJob, JobSpec, PodFailurePolicyRule};
use rules::build::labels;
use rules::model::{JobEnd, ObservedJob, ObservedPods};

use crate::random::Random;
use crate::worker::Worker;

/// The Job controller's pause before the pod of an index that failed is made again, doubled with
/// each failure, those that a rule ignores included; and the longest.
const FIRST_PAUSE_MS: i64 = 10_000;
const LONGEST_PAUSE_MS: i64 = 600_000;

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    pub index: usize,
    /// When something happens to it next.
    pub next_ms: i64,
    /// Once it runs.
    pub worker: Option<Worker>,
    /// Whether it was told to stop.
    pub is_terminating: bool,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Its worker exits.
    Exit(i32),
    /// The cluster ended it, and says so (`DisruptionTarget`).
    Disrupted,
}

/// A Job as the API server has it.
#[derive(Clone, Debug)]
pub struct Job {
    pub owner: String,
    pub seen: ObservedJob,
    spec: JobSpec,
    pub pods: Vec<Pod>,
    done: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    /// Failures of each index: those that count, and those that a rule ignores.
    failures: BTreeMap<usize, (i32, i32)>,
    /// When the pod of an index may be made again.
    not_before_ms: BTreeMap<usize, i64>,
    /// Why it ends, once its last pod is gone.
    verdict: Option<&'static str>,
    /// Whether a worker died and could not say so.
    has_deaths: bool,
}

/// All Jobs.
#[derive(Debug, Default)]
pub struct Cluster {
    pub jobs: BTreeMap<String, Job>,
    version: u64,
    /// Names that were ever created, with what for.
    created: BTreeMap<String, (String, u32, u32)>,
}

impl Cluster {
    pub fn version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Creates a Job; `false` if there is one of that name that is going.
    pub fn create(&mut self, owner: &str, job: &KubernetesJob) -> bool {
        let name = job.metadata.name.clone().expect("a Job has a name");
        if let Some(found) = self.jobs.get(&name) {
            return !found.seen.is_deleting;
        }
        let labels = job.metadata.labels.as_ref().expect("labels");
        let label = |key: &str| labels[key].clone();
        let annotations = job.metadata.annotations.as_ref();
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
            queue: labels.get(labels::QUEUE).cloned(),
            template: annotations.and_then(|all| all.get(labels::TEMPLATE).cloned()),
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
        let job = Job {
            owner: owner.to_owned(),
            seen,
            spec: spec.clone(),
            pods: Vec::new(),
            done: BTreeSet::new(),
            failed: BTreeSet::new(),
            failures: BTreeMap::new(),
            not_before_ms: BTreeMap::new(),
            verdict: None,
            has_deaths: false,
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
    pub fn control(&mut self, name: &str, pod_ms: i64, now_ms: i64, random: &mut Random) {
        let version = self.version();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if job.seen.is_deleting {
            job.stop_all(now_ms);
            // Its own end is told even then.
            if job.pods.is_empty() && random.in_thousand(500) {
                self.jobs.remove(name);
            }
            return;
        }
        if job.seen.end.is_some() {
            return;
        }
        let completions = job.seen.completions as usize;
        if job.done.len() < completions && job.done.len() + job.failed.len() == completions {
            job.verdict.get_or_insert("FailedIndexes");
        }
        if job.seen.is_suspended || job.verdict.is_some() {
            job.stop_all(now_ms);
        } else {
            job.fill(pod_ms, now_ms, random);
        }
        if let Some(reason) = job.verdict
            && job.pods.is_empty()
        {
            job.seen.end = Some(JobEnd::Failed {
                reason: reason.to_owned(),
                message: "some indexes failed".to_owned(),
            });
        } else if job.done.len() == completions {
            job.seen.end = Some(JobEnd::Complete);
        }
        job.count();
        job.seen.has_had_pods |= job.seen.active > 0;
        job.seen.resource_version = version;
    }

    pub fn pods(&self, owner: &str) -> ObservedPods {
        let jobs = || self.jobs.values().filter(|job| job.owner == owner);
        let live = || jobs().flat_map(|job| &job.pods);
        let ready = live().filter(|pod| pod.worker.is_some()).count() as u32;
        let has_deaths = jobs().any(|job| job.has_deaths);
        ObservedPods {
            live: live().count() as u32,
            ready,
            pending: live().count() as u32 - ready,
            died: has_deaths.then(|| "OOMKilled (exit 137)".to_owned()),
            ..ObservedPods::default()
        }
    }
}

impl Job {
    fn count(&mut self) {
        let live = || self.pods.iter().filter(|pod| !pod.is_terminating);
        self.seen.active = live().count() as u32;
        self.seen.ready = live().filter(|pod| pod.worker.is_some()).count() as u32;
        self.seen.terminating = self.pods.len() as u32 - self.seen.active;
        self.seen.succeeded = self.done.len() as u32;
        self.seen.failed_indexes = self.failed.len() as u32;
    }

    fn fill(&mut self, pod_ms: i64, now_ms: i64, random: &mut Random) {
        let taken: BTreeSet<usize> = self.pods.iter().map(|pod| pod.index).collect();
        let may_begin =
            |index: &usize| self.not_before_ms.get(index).is_none_or(|at| *at <= now_ms);
        let open: Vec<usize> = (0..self.seen.completions as usize)
            .filter(|index| {
                !taken.contains(index) && !self.done.contains(index) && !self.failed.contains(index)
            })
            .filter(may_begin)
            .collect();
        // No pod takes the place of another before that is gone.
        let parallelism = self.seen.parallelism as usize;
        let room = parallelism.saturating_sub(self.pods.len());
        for index in open.into_iter().take(room) {
            let (least, most) = (pod_ms as u64 / 2, pod_ms as u64 * 3 / 2);
            self.pods.push(Pod {
                index,
                next_ms: now_ms + random.between(least, most) as i64,
                worker: None,
                is_terminating: false,
            });
        }
        let live = self.pods.iter().filter(|pod| !pod.is_terminating).count();
        for _ in parallelism..live {
            let positions = (0..self.pods.len()).filter(|at| !self.pods[*at].is_terminating);
            let positions: Vec<usize> = positions.collect();
            self.stop(random.pick(&positions), now_ms);
        }
    }

    fn stop_all(&mut self, now_ms: i64) {
        for position in (0..self.pods.len()).rev() {
            self.stop(position, now_ms);
        }
    }

    /// Tells a pod to stop, as a deletion does. One that does not run yet is gone at once.
    pub fn stop(&mut self, position: usize, now_ms: i64) {
        let pod = &mut self.pods[position];
        if pod.worker.is_none() {
            self.pods.remove(position);
        } else if !pod.is_terminating {
            pod.is_terminating = true;
            pod.next_ms = now_ms;
        }
    }

    /// A pod has ended; the Job's own rules say what that is.
    pub fn ended(&mut self, position: usize, end: End, now_ms: i64) {
        let pod = self.pods.remove(position);
        self.has_deaths |= end == End::Exit(137) && !pod.is_terminating;
        if end == End::Exit(0) {
            self.done.insert(pod.index);
            return;
        }
        let (counted, ignored) = self.failures.entry(pod.index).or_default();
        match action(&self.spec, end) {
            Some("FailJob") => {
                self.verdict.get_or_insert("PodFailurePolicy");
            }
            Some("FailIndex") => {
                self.failed.insert(pod.index);
            }
            Some("Ignore") => *ignored += 1,
            _ => *counted += 1,
        }
        if *counted > self.spec.backoff_limit_per_index.expect("set") {
            self.failed.insert(pod.index);
        }
        let doubled = (*counted + *ignored - 1).clamp(0, 10);
        let pause_ms = (FIRST_PAUSE_MS << doubled).min(LONGEST_PAUSE_MS);
        self.not_before_ms.insert(pod.index, now_ms + pause_ms);
    }
}

/// The first rule that applies decides.
fn action(spec: &JobSpec, end: End) -> Option<&str> {
    let policy = spec.pod_failure_policy.as_ref()?;
    let applies = |rule: &&PodFailurePolicyRule| match end {
        End::Exit(code) => rule.on_exit_codes.as_ref().is_some_and(|codes| {
            let is_in = codes.values.contains(&code);
            is_in == (codes.operator == "In")
        }),
        End::Disrupted => rule
            .on_pod_conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "DisruptionTarget"),
    };
    Some(policy.rules.iter().find(applies)?.action.as_str())
}
