//! The one place that writes: carries out a decision.

mod error;

use std::sync::Arc;

use crds::{SidecarJob, SidecarJobStatus};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use rules::model::{Action, Decision, EventKind, EventNote, Observed};
use rules::reasons;
use serde_json::json;

use crate::events::Events;
use crate::identity::Identities;
use crate::leader::Leadership;
use crate::memory::{Memory, Subject};
use crate::metrics::Metrics;
use crate::observe::Unreadable;
use crate::runner::{Attempt, Hold, JobKey, Runners};
use crate::status_writer::status_patch;
use crate::watch::{ObjectKey, keep_job};

pub use error::ApplyError;

/// Who writes what, for people who look at `managedFields`.
const JOBS_MANAGER: &str = "sidecarjob-operator-jobs";
const STATUS_MANAGER: &str = "sidecarjob-operator-status";

/// Carries out decisions.
#[derive(Clone)]
pub struct Applier {
    /// Of the API server.
    pub client: Client,
    /// The background work.
    pub runners: Arc<Runners>,
    /// As whom prefixes are reached.
    pub identities: Arc<Identities>,
    /// What is remembered.
    pub memory: Arc<Memory>,
    /// Events.
    pub events: Events,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Whether this process may write at all.
    pub leadership: Leadership,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Applier")
    }
}

/// One object that is being written about.
struct Target<'a> {
    applier: &'a Applier,
    observed: &'a Observed,
    uid: String,
    namespace: String,
    name: String,
}

impl Applier {
    /// Carries out a decision: actions, then the status if it differs, then events.
    ///
    /// # Errors
    /// At the first thing that can't be done; what comes after it is not tried.
    pub async fn apply(&self, observed: &Observed, decision: Decision) -> Result<(), ApplyError> {
        let target = self.target(observed);
        for action in decision.actions {
            target.act(action).await?;
        }
        if let Some(status) = decision.status {
            let only_live_numbers = decision.only_live_numbers;
            target.write_status(&status, only_live_numbers).await?;
        }
        self.tell(observed, decision.events).await;
        Ok(())
    }

    /// Carries out what stops workers: each, whatever becomes of the others.
    ///
    /// # Errors
    /// The first thing that can't be done.
    pub async fn stop(&self, observed: &Observed, stops: Vec<Action>) -> Result<(), ApplyError> {
        let target = self.target(observed);
        let mut result = Ok(());
        for action in stops {
            let stopped = target.act(action).await;
            result = result.and(stopped);
        }
        result
    }

    /// Writes the status of a decision and tells its events, and does nothing else: about what
    /// went wrong.
    ///
    /// # Errors
    /// If it can't be written.
    pub async fn report(&self, observed: &Observed, decision: Decision) -> Result<(), ApplyError> {
        if let Some(status) = decision.status {
            self.target(observed).write_status(&status, false).await?;
        }
        self.tell(observed, decision.events).await;
        Ok(())
    }

    async fn tell(&self, observed: &Observed, events: Vec<EventNote>) {
        let about = observed.object.object_ref(&());
        for note in events {
            self.events.publish(&about, note).await;
        }
    }

    /// Tells people, once, of an object that can't be read.
    pub async fn tell_unreadable(&self, key: &ObjectKey, unreadable: Unreadable) {
        let Unreadable {
            error,
            uid,
            is_told,
        } = unreadable;
        if is_told {
            return;
        }
        let about = ObjectReference {
            api_version: Some(SidecarJob::api_version(&()).into_owned()),
            kind: Some(SidecarJob::kind(&()).into_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid,
            ..ObjectReference::default()
        };
        let note = EventNote {
            kind: EventKind::Warning,
            reason: reasons::INVALID_OBJECT,
            action: "Read",
            message: format!(
                "this operator can't read the object, and leaves it alone until it changes: {error}"
            ),
        };
        self.events.publish(&about, note).await;
    }

    fn target<'a>(&'a self, observed: &'a Observed) -> Target<'a> {
        let object = &observed.object;
        Target {
            applier: self,
            observed,
            uid: object.uid().unwrap_or_default(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl Target<'_> {
    async fn act(&self, action: Action) -> Result<(), ApplyError> {
        self.may_write()?;
        let runners = &self.applier.runners;
        match action {
            Action::Hold {
                run,
                prefix,
                digest,
                replaces,
                main,
                manifest,
                skip_existing,
            } => {
                let hold = Hold {
                    run,
                    prefix,
                    digest,
                    replaces,
                    main,
                    manifest,
                    skip_existing,
                };
                self.hold(hold).await
            }
            Action::Plan => {
                runners.plan(&self.uid);
                Ok(())
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
                if let Some(after) = after {
                    self.make_sure_it_is_over(&after).await?;
                }
                let run = job.labels().get(rules::build::labels::RUN).cloned();
                let run = run.unwrap_or_default();
                let attempt = Attempt {
                    batch,
                    attempt,
                    items,
                    epoch,
                    tries,
                };
                match runners.start(&self.uid, &run, &attempt)? {
                    true => self.create_job(&job).await,
                    // Its facts tell when it is there.
                    false => Ok(()),
                }
            }
            Action::Scale {
                name,
                resource_version,
                parallelism,
            } => {
                let patch = json!({"spec": {"parallelism": parallelism}});
                self.patch_job("scale", &name, resource_version, patch)
                    .await
            }
            Action::Suspend {
                name,
                resource_version,
                suspend,
            } => {
                let verb = if suspend { "suspend" } else { "resume" };
                let mark = suspend.then_some("true");
                let patch = json!({
                    "metadata": {"annotations": {rules::build::labels::SUSPENDED: mark}},
                    "spec": {"suspend": suspend},
                });
                self.patch_job(verb, &name, resource_version, patch).await
            }
            Action::DeleteJob { name } => self.delete_job(&name).await,
            Action::EndPod { name, uid } => self.end_pod(&name, uid).await,
            Action::Settle {
                batch,
                attempt,
                death,
            } => {
                runners.settle(&self.uid, batch, attempt, death);
                Ok(())
            }
            Action::Seal { given_up } => {
                runners.seal(&self.uid, given_up);
                Ok(())
            }
            Action::Release => {
                runners.release(&self.uid);
                self.applier.identities.forget(&self.uid);
                Ok(())
            }
            Action::Abandon { run, prefix } => self.abandon(&run, &prefix).await,
            Action::DeleteObject => self.delete_object().await,
        }
    }

    fn may_write(&self) -> Result<(), ApplyError> {
        match self.applier.leadership.is_leader() {
            true => Ok(()),
            false => Err(ApplyError::NotLeader),
        }
    }

    async fn hold(&self, hold: Hold) -> Result<(), ApplyError> {
        let object = &self.observed.object;
        let identities = &self.applier.identities;
        let stores = identities.stores(object, Some(&hold.prefix)).await?;
        self.applier.runners.hold(&self.key(), stores, hold)?;
        Ok(())
    }

    async fn abandon(&self, run: &str, prefix: &str) -> Result<(), ApplyError> {
        let object = &self.observed.object;
        let identities = &self.applier.identities;
        // Without an identity it can only expire.
        if let Ok(stores) = identities.stores(object, Some(prefix)).await {
            let runners = &self.applier.runners;
            runners.abandon(&self.key(), stores, run, prefix);
            identities.forget(&self.uid);
        }
        Ok(())
    }

    fn key(&self) -> JobKey {
        JobKey {
            uid: self.uid.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Asks the API server itself: a watch may be behind.
    async fn make_sure_it_is_over(&self, name: &str) -> Result<(), ApplyError> {
        let found = self.jobs().get_opt(name).await;
        let found = found.map_err(|error| self.failed("get", &job_words(name), error))?;
        let is_over = found.is_none_or(|job| {
            keep_job(&job).is_none_or(|kept| kept.owner != self.uid || kept.observed.end.is_some())
        });
        match is_over {
            true => Ok(()),
            false => Err(outdated(name)),
        }
    }

    async fn create_job(&self, job: &Job) -> Result<(), ApplyError> {
        self.may_write()?;
        let name = job.name_any();
        let parameters = PostParams {
            field_manager: Some(JOBS_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = self.jobs().create(&parameters, job).await;
        self.count("Job", "create", &created);
        match created {
            Ok(_) => {
                self.expect(Subject::Job(name), None);
                Ok(())
            }
            // Created before a crash, or before a watch told of it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found = self.jobs().get_opt(&name).await;
                let found = found.map_err(|error| self.failed("get", &job_words(&name), error))?;
                match found {
                    None => Err(outdated(&name)),
                    Some(found) if controls(&self.uid, &found) => Ok(()),
                    Some(_) => Err(ApplyError::ForeignJob { name }),
                }
            }
            Err(error) => Err(self.failed("create", &job_words(&name), error)),
        }
    }

    async fn patch_job(
        &self,
        verb: &'static str,
        name: &str,
        version: String,
        mut patch: serde_json::Value,
    ) -> Result<(), ApplyError> {
        patch["metadata"]["resourceVersion"] = json!(version);
        let parameters = PatchParams {
            field_manager: Some(JOBS_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let jobs = self.jobs();
        let patched = jobs.patch(name, &parameters, &Patch::Merge(&patch)).await;
        self.count("Job", "patch", &patched);
        match patched {
            Ok(patched) => {
                if patched.resource_version().as_ref() != Some(&version) {
                    self.expect(Subject::Job(name.to_owned()), Some(version));
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Err(outdated(name))
            }
            Err(error) => Err(self.failed(verb, &job_words(name), error)),
        }
    }

    async fn delete_job(&self, name: &str) -> Result<(), ApplyError> {
        let known = self.observed.jobs.iter().find(|job| job.name == name);
        let parameters = DeleteParams {
            preconditions: known.map(|job| Preconditions {
                uid: Some(job.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::foreground()
        };
        let deleted = self.jobs().delete(name, &parameters).await;
        self.count("Job", "delete", &deleted);
        match deleted {
            Ok(_) => {
                if let Some(job) = known {
                    let former = Some(job.resource_version.clone());
                    self.expect(Subject::Job(name.to_owned()), former);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            // Another Job of that name: not the one that was seen.
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(outdated(name)),
            Err(error) => Err(self.failed("delete", &job_words(name), error)),
        }
    }

    async fn end_pod(&self, name: &str, uid: String) -> Result<(), ApplyError> {
        let pods: Api<Pod> = Api::namespaced(self.applier.client.clone(), &self.namespace);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let deleted = pods.delete(name, &parameters).await;
        self.count("Pod", "delete", &deleted);
        match deleted {
            Ok(_) => Ok(()),
            // It has gone, or another has its name.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(())
            }
            Err(error) => Err(self.failed("delete", &format!("the pod {name}"), error)),
        }
    }

    /// Deletes exactly the object that was seen: not another of its name, nor one that somebody
    /// has touched since.
    async fn delete_object(&self) -> Result<(), ApplyError> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: self.observed.object.resource_version(),
            }),
            ..DeleteParams::background()
        };
        let deleted = self.objects().delete(&self.name, &parameters).await;
        self.count("SidecarJob", "delete", &deleted);
        match deleted {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(outdated(&self.name)),
            Err(error) => Err(self.failed("delete", "the SidecarJob", error)),
        }
    }

    async fn write_status(
        &self,
        status: &SidecarJobStatus,
        only_live_numbers: bool,
    ) -> Result<(), ApplyError> {
        let object = &self.observed.object;
        let now = Timestamp::now().as_millisecond();
        if only_live_numbers && !self.is_due(now) {
            return Ok(());
        }
        let version = object.resource_version().unwrap_or_default();
        let Some(patch) = status_patch(object.status.as_ref(), status, &version)? else {
            return Ok(());
        };
        self.may_write()?;
        let parameters = PatchParams {
            field_manager: Some(STATUS_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let objects = self.objects();
        let written = objects
            .patch_status(&self.name, &parameters, &Patch::Merge(&patch))
            .await;
        self.count("SidecarJob", "patch", &written);
        match written {
            Ok(written) => {
                if written.resource_version().as_ref() != Some(&version) {
                    self.expect(Subject::Object, Some(version));
                }
                self.applier.memory.note_status_written(&self.uid, now);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Err(outdated(&self.name))
            }
            Err(error) => Err(self.failed("write", "the status", error)),
        }
    }

    fn is_due(&self, now_ms: i64) -> bool {
        let pause = self
            .observed
            .settings
            .live_status_seconds
            .saturating_mul(1000);
        let written = self.observed.live_written_ms;
        written.is_none_or(|written| now_ms.saturating_sub(written) >= pause)
    }

    fn expect(&self, subject: Subject, former: Option<String>) {
        self.applier.memory.note_write(&self.uid, subject, former);
    }

    fn count<T>(&self, kind: &'static str, verb: &'static str, result: &Result<T, kube::Error>) {
        let code = match result {
            Ok(_) => "ok".to_owned(),
            Err(kube::Error::Api(status)) => status.code.to_string(),
            Err(_) => "none".to_owned(),
        };
        self.applier.metrics.count_api_write(kind, verb, &code);
    }

    fn failed(&self, verb: &'static str, what: &str, error: kube::Error) -> ApplyError {
        ApplyError::Api {
            verb,
            what: what.to_owned(),
            source: Box::new(error),
        }
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.applier.client.clone(), &self.namespace)
    }

    fn objects(&self) -> Api<SidecarJob> {
        Api::namespaced(self.applier.client.clone(), &self.namespace)
    }
}

fn job_words(name: &str) -> String {
    format!("the Job {name}")
}

fn outdated(what: &str) -> ApplyError {
    ApplyError::Outdated {
        what: what.to_owned(),
    }
}

fn controls(uid: &str, job: &Job) -> bool {
    let mut owners = job.owner_references().iter();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}
