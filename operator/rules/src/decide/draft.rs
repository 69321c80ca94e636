//! A decision in the making.

use std::sync::Arc;
use std::time::Duration;

use crds::{RunStatus, SidecarJob, SidecarJobStatus};
use k8s_openapi::jiff::Timestamp;

use super::standing::{self, Course, Phase, Standing};
use super::{announce, suspend, throttle};
use crate::conditions::{Conditions, MESSAGE_BYTES, Status, clip};
use crate::model::{Action, Decision, EventNote, LockFacts, Observed, ObservedJob, RunFacts};
use crate::reasons::{self, types};

/// When a job that moves is looked at again if nothing happens.
pub(super) const MOVING: Duration = Duration::from_secs(60);

/// When a job that rests is looked at again.
pub(super) const RESTING: Duration = Duration::from_secs(600);

/// When the next step follows from this one, whose status write wakes the controller anyway.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);

/// A decision in the making.
pub(super) struct Draft<'a> {
    pub(super) observed: &'a Observed,
    pub(super) object: &'a SidecarJob,
    pub(super) now: Timestamp,
    /// The status as it was.
    pub(super) before: SidecarJobStatus,
    /// The status as it will be, without conditions, phase and message.
    pub(super) status: SidecarJobStatus,
    pub(super) conditions: Conditions,
    pub(super) actions: Vec<Action>,
    /// How the job stands; `None`: as before.
    pub(super) standing: Option<Standing>,
    /// Why a change of the spec isn't followed: reason and message.
    pub(super) objection: Option<(&'static str, String)>,
    /// Whether the spec asks for the run that goes on.
    pub(super) is_as_begun: bool,
    pub(super) requeue: Duration,
    /// What to tell of what is done, beside the differences of the status.
    pub(super) notes: Vec<EventNote>,
    /// Whether the actions of this decision could not all be carried out.
    pub(super) is_undone: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(observed: &'a Observed, now: Timestamp) -> Self {
        let object: &SidecarJob = &observed.object;
        let before = object.status.clone().unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or_default();
        let mut status = before.clone();
        status.observed_generation = Some(generation);
        Self {
            observed,
            object,
            now,
            conditions: Conditions::new(&before.conditions, generation, now),
            before,
            status,
            actions: Vec::new(),
            standing: None,
            objection: None,
            is_as_begun: false,
            requeue: MOVING,
            notes: Vec::new(),
            is_undone: false,
        }
    }

    pub(super) fn run(&self) -> Option<&RunStatus> {
        self.before.run.as_ref()
    }

    /// Whether this decision, or one before it, ends the run.
    pub(super) fn has_ended(&self) -> bool {
        let run = self.status.run.as_ref();
        run.is_some_and(|run| run.finished_at.is_some())
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.object.spec.suspend
    }

    /// What is known of this run; nothing if the background work is about another.
    pub(super) fn facts(&self, run: &RunStatus) -> Option<Arc<RunFacts>> {
        let facts = self.observed.run.as_ref()?;
        (facts.run == run.name).then(|| Arc::clone(facts))
    }

    /// Whether the object was looked at before the run that goes on was in its status: nothing may
    /// rest on that.
    pub(super) fn is_behind(&self) -> bool {
        let Some(facts) = &self.observed.run else {
            return false;
        };
        let run = self.run().map_or("", |run| run.name.as_str());
        facts.lock != LockFacts::Released && facts.run.as_str() > run
    }

    /// Whether the condition was true before this decision, in the API server's eyes.
    pub(super) fn was_true(&self, kind: &str) -> bool {
        self.before
            .conditions
            .iter()
            .any(|condition| condition.type_ == kind && condition.status == Status::True.word())
    }

    /// The phase that the status has, where nothing new can be said about it.
    pub(super) fn phase_before(&self) -> Phase {
        let steps = [
            Phase::Planning,
            Phase::Canary,
            Phase::Running,
            Phase::Verifying,
        ];
        let before = self.before.phase.as_deref();
        let found = steps.into_iter().find(|phase| before == Some(phase.word()));
        found.unwrap_or(Phase::Pending)
    }

    /// Whether a change of the spec was refused when the object was last looked at.
    pub(super) fn is_rejected(&self) -> bool {
        let mut conditions = self.before.conditions.iter();
        conditions.any(|found| found.reason == reasons::SPEC_CHANGED_AFTER_START)
    }

    /// The image that the operator was installed with, if any.
    pub(super) fn default_image(&self) -> Option<String> {
        let image = &self.observed.settings.worker_image;
        (!image.is_empty()).then(|| image.clone())
    }

    pub(super) fn stand(&mut self, standing: Standing) {
        self.standing = Some(standing);
    }

    /// Deletes the Jobs, and gives up the lock after them: until its pods are gone, somebody
    /// else's would meet them. Whether neither is left.
    pub(super) fn wind_down(&mut self) -> bool {
        let observed = self.observed;
        for job in &observed.jobs {
            self.delete(job);
        }
        let is_held = observed
            .run
            .as_ref()
            .is_some_and(|facts| facts.lock != LockFacts::Released);
        match (is_held, observed.jobs.is_empty()) {
            (true, true) => self.actions.push(Action::Release),
            (true, false) => self.look_again_in(5),
            (false, _) => {}
        }
        !is_held && observed.jobs.is_empty()
    }

    pub(super) fn delete(&mut self, job: &ObservedJob) {
        let is_asked = self
            .actions
            .iter()
            .any(|action| matches!(action, Action::DeleteJob { name } if *name == job.name));
        if !job.is_deleting && !is_asked {
            self.actions.push(Action::DeleteJob {
                name: job.name.clone(),
            });
        }
    }

    /// Seconds since a time of the status; negative if it is still to come.
    pub(super) fn seconds_since(&self, time: Timestamp) -> i64 {
        self.now.as_second().saturating_sub(time.as_second())
    }

    pub(super) fn look_again_in(&mut self, seconds: i64) {
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1));
        self.requeue = self.requeue.min(seconds);
    }

    pub(super) fn finish(mut self) -> Decision {
        suspend::set_condition(&mut self);
        self.apply_trouble();
        self.keep_what_is_undone();
        if let Some(standing) = &self.standing {
            standing::apply(standing, &mut self.conditions);
            self.status.phase = Some(standing.phase.word().to_owned());
            self.status.message = Some(clip(&standing.message, MESSAGE_BYTES));
        }
        if let Some((reason, message)) = &self.objection {
            let is_moving = self.conditions.is_true(types::RECONCILING);
            standing::apply_objection(reason, message, is_moving, &mut self.conditions);
            let shown = match (is_moving, &self.standing) {
                (false, _) => Some(message.clone()),
                (true, Some(standing)) => Some(format!("{}; {message}", standing.message)),
                (true, None) => None,
            };
            if let Some(shown) = shown {
                self.status.message = Some(clip(&shown, MESSAGE_BYTES));
            }
            if !is_moving {
                self.status.phase = Some(Phase::Stalled.word().to_owned());
            }
        }
        self.status.conditions = self.conditions.into_list();
        let throttled = throttle::apply(self.observed, self.now, &self.before, self.status);
        let mut events = announce::differences(self.object, &self.before, &throttled.status);
        if !self.is_undone {
            events.append(&mut self.notes);
        }
        let wait = throttled.wait.unwrap_or(self.requeue);
        Decision {
            status: Some(throttled.status),
            only_live_numbers: throttled.only_live_numbers,
            actions: self.actions,
            events,
            requeue: self.requeue.min(wait),
        }
    }

    /// The number of workers is that of the last decision that was carried out.
    fn keep_what_is_undone(&mut self) {
        if !self.is_undone || self.has_ended() {
            return;
        }
        if let Some(sizing) = &mut self.status.sizing {
            let before = self.before.sizing.as_ref();
            sizing.workers = before.and_then(|before| before.workers);
            sizing.changed_at = before.and_then(|before| before.changed_at.clone());
        }
        if let Some(workers) = &mut self.status.workers {
            let before = self.before.workers.as_ref();
            workers.desired = before.map_or(0, |before| before.desired);
            workers.summary = Some(format!("{}/{}", workers.ready, workers.desired));
        }
    }

    fn is_moving(&self) -> bool {
        match &self.standing {
            Some(standing) => standing.course == Course::Moving,
            None => self.conditions.is_true(types::RECONCILING),
        }
    }

    /// What goes wrong and is tried again shows where the job would otherwise seem to go on.
    fn apply_trouble(&mut self) {
        let of_run = self
            .observed
            .run
            .as_ref()
            .and_then(|facts| facts.trouble.clone());
        let trouble = self.observed.trouble.as_ref();
        if let Some(trouble) = trouble
            && reasons::ONLY_A_PERSON.contains(&trouble.reason)
            && self.observed.pods.live == 0
            && self.is_moving()
        {
            let (reason, message) = (trouble.reason, trouble.message.clone());
            return self.stand(Standing::new(
                Phase::Stalled,
                Course::Stuck,
                reason,
                message,
            ));
        }
        let Some(trouble) = trouble.map(|trouble| trouble.message.clone()).or(of_run) else {
            return;
        };
        match &mut self.standing {
            Some(standing) if standing.course == Course::Moving => {
                standing.reason = reasons::PROGRESSING_WITH_RETRY.to_owned();
                standing.message = trouble;
            }
            Some(_) => {}
            None if self.conditions.is_true(types::RECONCILING) => {
                let reason = reasons::PROGRESSING_WITH_RETRY;
                self.conditions
                    .set(types::READY, Status::Unknown, reason, &trouble);
                self.conditions
                    .set(types::RECONCILING, Status::True, reason, &trouble);
                self.status.message = Some(clip(&trouble, MESSAGE_BYTES));
            }
            None => {}
        }
    }
}
