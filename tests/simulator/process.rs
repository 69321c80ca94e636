//! The operator's process: what it remembers, what it sees late, and how it carries decisions out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::SidecarJob;
use k8s_openapi::jiff::Timestamp;
use rules::decide::decide;
use rules::model::{Action, Asked, Decision, Observed, ObservedJob};

use storage::state::batch::{Batch, WorkItem};

use crate::runner::{Hold, Runner};
use crate::world::World;

/// What dies with the process.
#[derive(Debug, Default)]
pub struct Process {
    pub runners: BTreeMap<String, Runner>,
    /// Jobs as the watch has told of them so far, with their owners.
    pub jobs: BTreeMap<String, (String, ObservedJob)>,
    /// Objects as the watch has told of them so far.
    pub objects: BTreeMap<String, SidecarJob>,
    live_written: BTreeMap<String, i64>,
    /// The version that the process itself has written last.
    written: BTreeMap<String, u64>,
}

/// What a reconcile did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub actions: u32,
    pub status_writes: u32,
}

pub fn version(object: &SidecarJob) -> u64 {
    let version = object.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

impl World {
    /// Looks at one object and does what is decided. The process may die on the way.
    pub fn reconcile(&mut self, uid: &str) -> Done {
        let mut done = Done::default();
        let Some(observed) = self.observe(uid) else {
            return done;
        };
        let now = Timestamp::from_millisecond(self.now_ms).expect("a time");
        let mut decision = decide(&observed, now);
        if let Some(spoil) = self.spoil {
            spoil(&observed, &mut decision);
        }
        self.checks.decision(&observed, &decision);
        let Decision {
            status,
            only_live_numbers,
            actions,
            ..
        } = decision;
        for action in actions {
            if self.dies() {
                return done;
            }
            // What is only asked for again changes nothing.
            if !matches!(action, Action::Hold { .. } | Action::Abandon { .. }) {
                done.actions += 1;
            }
            if !self.act(uid, action) {
                return done;
            }
        }
        if self.dies() {
            return done;
        }
        let Some(status) = status else {
            return done;
        };
        if observed.object.status.as_ref() == Some(&status) {
            return done;
        }
        let Some(stored) = self.objects.get_mut(uid) else {
            return done;
        };
        if version(stored) != version(&observed.object) {
            return done;
        }
        self.checks.status(uid, stored.status.as_ref(), &status);
        stored.status = Some(status);
        let next = version(stored) + 1;
        stored.metadata.resource_version = Some(next.to_string());
        done.status_writes += 1;
        let now_ms = self.now_ms;
        if let Some(process) = &mut self.process {
            process.written.insert(uid.to_owned(), next);
            if only_live_numbers {
                process.live_written.insert(uid.to_owned(), now_ms);
            }
        }
        done
    }

    fn observe(&mut self, uid: &str) -> Option<Observed> {
        let random = self.random.next() as u32;
        let process = self.process.as_ref()?;
        let object = process.objects.get(uid)?;
        let is_behind = process
            .written
            .get(uid)
            .is_some_and(|written| version(object) < *written);
        if is_behind {
            return None;
        }
        let jobs = process.jobs.values();
        Some(Observed {
            object: Arc::new(object.clone()),
            jobs: jobs
                .filter(|(owner, _)| owner == uid)
                .map(|(_, job)| job.clone())
                .collect(),
            pods: self.cluster.pods(uid),
            asked: Asked::default(),
            run: process.runners.get(uid).map(Runner::facts),
            refusal: None,
            has_identity: false,
            is_namespace_going: false,
            trouble: None,
            live_written_ms: process.live_written.get(uid).copied(),
            random,
            settings: Arc::clone(&self.settings),
        })
    }

    /// `false` if it could not be done: then the rest isn't, either.
    fn act(&mut self, uid: &str, action: Action) -> bool {
        match action {
            Action::Hold {
                run,
                prefix,
                digest,
                replaces,
                skip_existing,
                manifest,
                main: _,
            } => {
                if let Some(manifest) = manifest {
                    assert_eq!(manifest["spec"]["output"]["prefix"], prefix);
                }
                let former = self.runner(uid).map(|runner| runner.hold.run.clone());
                if former.as_deref() == Some(run.as_str()) {
                    return true;
                }
                if former.is_some() {
                    self.release(uid);
                }
                let seconds = u64::try_from(self.settings.window_seconds).expect("positive");
                let runner = Runner::new(Hold {
                    uid: uid.to_owned(),
                    run,
                    prefix,
                    digest,
                    replaces,
                    skip_existing,
                    window: Duration::from_secs(seconds),
                });
                if let Some(process) = &mut self.process {
                    process.runners.insert(uid.to_owned(), runner);
                }
                true
            }
            Action::Plan => self.ask(uid, Runner::ask_for_plan),
            Action::Settle {
                batch,
                attempt,
                death,
            } => self.ask(uid, |runner| runner.ask_to_settle(batch, attempt, death)),
            Action::Seal { given_up } => self.ask(uid, |runner| runner.ask_for_seal(given_up)),
            Action::Release => {
                self.release(uid);
                true
            }
            Action::Start {
                batch,
                attempt,
                items,
                epoch,
                tries,
                job,
                after,
            } => {
                let is_over = |name: &String| {
                    let job = self.cluster.jobs.get(name);
                    job.is_none_or(|job| job.seen.end.is_some())
                };
                if !after.as_ref().is_none_or(is_over) {
                    return false;
                }
                let Some(process) = &mut self.process else {
                    return false;
                };
                let Some(runner) = process.runners.get_mut(uid) else {
                    return false;
                };
                let run = runner.hold.run.parse().expect("a name");
                let items = items
                    .iter()
                    .map(|(first, end)| WorkItem::from(*first..*end));
                let digest = runner.hold.digest.clone();
                let file = Batch::new(run, digest, u64::from(batch), attempt, items);
                let prefix = self.prefixes.entry(runner.hold.prefix.clone()).or_default();
                if !runner.start(prefix, file.counting(epoch, tries)) {
                    return false;
                }
                if self.dies() {
                    return false;
                }
                self.cluster.create(uid, &job)
            }
            Action::Scale {
                name,
                resource_version,
                parallelism,
            } => self.patch(&name, &resource_version, |job| {
                job.parallelism = parallelism
            }),
            Action::Suspend {
                name,
                resource_version,
                suspend,
            } => self.patch(&name, &resource_version, |job| {
                assert!(job.queue.is_none(), "the queue owns suspend");
                assert!(suspend || job.is_suspended_by_us, "somebody else's");
                job.is_suspended = suspend;
                job.is_suspended_by_us = suspend;
            }),
            Action::DeleteJob { name } => {
                self.cluster.delete(&name);
                true
            }
            Action::EndPod { name, .. } => panic!("no pod of these stories hangs: {name}"),
            // What a process before this one left expires in these stories.
            Action::Abandon { .. } => true,
            Action::DeleteObject => panic!("no object of these stories has a time to live"),
        }
    }

    fn runner(&self, uid: &str) -> Option<&Runner> {
        self.process.as_ref()?.runners.get(uid)
    }

    fn ask(&mut self, uid: &str, what: impl FnOnce(&mut Runner)) -> bool {
        let process = self.process.as_mut();
        if let Some(runner) = process.and_then(|process| process.runners.get_mut(uid)) {
            what(runner);
        }
        true
    }

    fn release(&mut self, uid: &str) {
        let process = self.process.as_mut();
        if let Some(runner) = process.and_then(|process| process.runners.remove(uid)) {
            let prefix = self.prefixes.entry(runner.hold.prefix.clone()).or_default();
            runner.release(prefix);
        }
    }

    fn patch(&mut self, name: &str, seen: &str, change: impl FnOnce(&mut ObservedJob)) -> bool {
        let version = self.cluster.version();
        let Some(job) = self.cluster.jobs.get_mut(name) else {
            return false;
        };
        if job.seen.resource_version != seen {
            return false;
        }
        change(&mut job.seen);
        job.seen.resource_version = version;
        true
    }
}
