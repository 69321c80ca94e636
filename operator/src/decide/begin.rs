//! New runs: the first one, those that somebody asks for, and those that replace another.
//!
//! A run begins by its name in the status and nothing else. Only once that is in the API server
//! anything is made under the name, so that no crash can leave something that nobody knows of.

use crds::{OnSpecChange, RunStatus, SidecarJob};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use storage::state::RunId;
use time::OffsetDateTime;

use super::draft::{AT_ONCE, Draft, RESTING};
use super::standing::{Course, Phase, Standing};
use super::suspend;
use super::wanted::Wanted;
use crate::build::labels;
use crate::conditions::seconds;
use crate::model::{Action, LockFacts};
use crate::reasons::{self, types};

/// Most digests whose shards a run may replace.
const MOST_REPLACED: usize = 8;

/// Most characters of a token that are looked at.
const TOKEN_LENGTH: usize = 256;

/// The first run of an object.
pub(super) fn first(draft: &mut Draft<'_>, wanted: Result<Wanted, String>) {
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(message) => {
            draft.requeue = RESTING;
            return draft.stand(Standing::new(
                Phase::Stalled,
                Course::Stuck,
                reasons::INVALID_SPEC,
                message,
            ));
        }
    };
    if draft.is_suspended() {
        draft.requeue = RESTING;
        return draft.stand(suspend::standing("nothing was started yet"));
    }
    begin(draft, &wanted, &Terms::default());
}

/// On what terms a run begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    /// It may replace what the run before wrote with another pipeline.
    pub(super) may_replace: bool,
    /// It makes every shard again.
    pub(super) redo_all: bool,
}

/// Another run than the present one, which goes on still, if the spec now asks for that.
pub(super) fn replacement(
    draft: &mut Draft<'_>,
    run: &RunStatus,
    wanted: Result<Wanted, String>,
) -> Option<Wanted> {
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(message) => {
            draft.objection = Some((reasons::INVALID_SPEC, message));
            return None;
        }
    };
    let output = draft.before.output.clone().unwrap_or_default();
    if wanted.is(run, &output) || draft.is_suspended() {
        return None;
    }
    // Before there is a plan nothing has begun that could be finished as it began, and the
    // manifest that the workers go by may not have been written yet.
    let has_begun = draft.was_true(types::PLANNED);
    if has_begun && wanted.on_change == OnSpecChange::Reject {
        draft.objection = Some(rejected(&wanted, run));
        return None;
    }
    Some(wanted)
}

/// Why a change isn't followed.
pub(super) fn rejected(wanted: &Wanted, run: &RunStatus) -> (&'static str, String) {
    let same = run.pipeline_digest.as_deref() == Some(wanted.digest.as_str());
    let what = if same {
        "the output prefix"
    } else {
        "the dataset, the columns or the pipeline"
    };
    let message = format!(
        "{what} changed after run {} started, and spec.onSpecChange is Reject; change it back, \
         set spec.onSpecChange to Rerun or NewPrefix, or ask for a run with the annotation {}",
        run.name,
        labels::RERUN_REQUESTED_AT
    );
    (reasons::SPEC_CHANGED_AFTER_START, message)
}

/// Stops the present run, then begins the other.
pub(super) fn replace(draft: &mut Draft<'_>, wanted: Wanted) {
    let observed = draft.observed;
    for job in &observed.jobs {
        draft.delete(job);
    }
    let is_released = observed
        .run
        .as_ref()
        .is_none_or(|facts| facts.lock == LockFacts::Released);
    if !is_released && observed.jobs.is_empty() {
        draft.actions.push(Action::Release);
    }
    if !observed.jobs.is_empty() || !is_released {
        draft.look_again_in(5);
        return draft.stand(Standing::new(
            Phase::Pending,
            Course::Moving,
            reasons::REPLACING_RUN,
            "the spec changed: the workers of the run before are being stopped".to_owned(),
        ));
    }
    let terms = Terms {
        may_replace: wanted.on_change == OnSpecChange::Rerun,
        redo_all: false,
    };
    begin(draft, &wanted, &terms);
}

/// Begins a run: its name, and a status that knows nothing of the run before.
pub(super) fn begin(draft: &mut Draft<'_>, wanted: &Wanted, terms: &Terms) {
    let before = &draft.before;
    let last = before.run.as_ref();
    let place = wanted.place(before.output.as_deref(), draft.now);
    let replaces = match last {
        Some(last) if before.output.as_deref() == Some(place.prefix.as_str()) => {
            replaced(last, wanted, terms)
        }
        _ => Vec::new(),
    };
    let now = OffsetDateTime::from_unix_timestamp_nanos(draft.now.as_nanosecond())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let attempt = last.and_then(|last| last.attempt).unwrap_or(0);
    let run = RunStatus {
        name: RunId::new(now, draft.observed.random).to_string(),
        pipeline_digest: Some(wanted.digest.clone()),
        attempt: Some(attempt.saturating_add(1)),
        replaces,
        redo_all: terms.redo_all,
        epoch: None,
        started_at: Some(Time(seconds(draft.now))),
        finished_at: None,
    };
    let message = if place.is_chosen {
        format!(
            "run {} begins; spec.output.prefix is not set, so the sidecar goes to {}",
            run.name, place.prefix
        )
    } else {
        format!("run {} begins", run.name)
    };
    let token = rerun_token(draft.object).or_else(|| before.last_handled_rerun.clone());
    draft.status = crds::SidecarJobStatus {
        observed_generation: draft.status.observed_generation,
        output: Some(place.prefix),
        run: Some(run),
        last_handled_rerun: token,
        ..crds::SidecarJobStatus::default()
    };
    for kind in types::ALL {
        if kind != types::READY && kind != types::SUSPENDED {
            draft.conditions.remove(kind);
        }
    }
    draft.actions.clear();
    draft.objection = None;
    draft.requeue = AT_ONCE;
    draft.stand(Standing::moving(Phase::Pending, message));
}

/// Digests whose shards the new run may replace. What the run before had not got to yet is
/// still of those that it was to replace.
fn replaced(last: &RunStatus, wanted: &Wanted, terms: &Terms) -> Vec<String> {
    let mut digests = last.replaces.clone();
    if terms.may_replace {
        digests.extend(last.pipeline_digest.clone());
    }
    let mut replaced: Vec<String> = Vec::new();
    for digest in digests.into_iter().rev() {
        if digest != wanted.digest && !replaced.contains(&digest) {
            replaced.push(digest);
        }
    }
    replaced.truncate(MOST_REPLACED);
    replaced
}

/// The token of the annotation by which somebody asks for a run.
pub(super) fn rerun_token(object: &SidecarJob) -> Option<String> {
    let annotations = object.metadata.annotations.as_ref()?;
    let token: String = annotations
        .get(labels::RERUN_REQUESTED_AT)?
        .chars()
        .take(TOKEN_LENGTH)
        .collect();
    (!token.is_empty()).then_some(token)
}

/// Whether that run is to make everything again.
pub(super) fn wants_all(object: &SidecarJob) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(labels::RERUN_MODE))
        .is_some_and(|mode| mode == "all")
}
