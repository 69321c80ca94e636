//! New runs: the first one, those that somebody asks for, and those that replace another.
//!
//! A run begins by its name in the status and nothing else. Only once that is in the API server
//! anything is made under the name, so that no crash can leave something that nobody knows of.

use crds::RunId;
use crds::{OnSpecChange, OutputStatus, RunStatus, SidecarJob, SidecarJobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use time::OffsetDateTime;

use super::draft::{AT_ONCE, Draft, RESTING};
use super::standing::{Course, Phase, Standing};
use super::suspend;
use super::wanted::Wanted;
use crate::build::labels;
use crate::conditions::seconds;
use crate::model::frozen;
use crate::reasons::{self, types};

/// Most outputs that an object remembers, and most digests of one. What was there before is
/// found by the plans of the runs that replaced it.
const MOST_OUTPUTS: usize = 8;
const MOST_DIGESTS: usize = 16;

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
    let terms = Terms {
        token: rerun_token(draft.object),
        ..Terms::default()
    };
    begin(draft, &wanted, &terms);
}

/// On what terms a run begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    /// It makes every shard again.
    pub(super) redo_all: bool,
    /// The token by which somebody has asked for it. Any other token waits until it has ended.
    pub(super) token: Option<String>,
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
    // Before there is a plan nothing has begun that could be finished as it began, and the
    // manifest that the workers go by may not have been written yet: it is to be as this release
    // understands the spec.
    let has_begun = draft.was_true(types::PLANNED);
    let is_current = has_begun || run.pipeline_digest.as_ref() == Some(&wanted.digest);
    draft.is_as_begun = wanted.is(run, &output) && wanted.reaches(run) && is_current;
    if draft.is_as_begun || draft.is_suspended() {
        return None;
    }
    if has_begun && wanted.on_change == OnSpecChange::Reject {
        draft.objection = Some(rejected(&wanted, run, &output));
        return None;
    }
    Some(wanted)
}

/// Why a change isn't followed.
pub(super) fn rejected(wanted: &Wanted, run: &RunStatus, output: &str) -> (&'static str, String) {
    let what = if !wanted.is_pipeline(run) {
        "the dataset, the columns or the pipeline"
    } else if !wanted.is(run, output) {
        "the output prefix"
    } else {
        "how object storage is reached (spec.storage, but for its credentials)"
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
    if !draft.wind_down() {
        draft.look_again_in(5);
        return draft.stand(Standing::new(
            Phase::Pending,
            Course::Moving,
            reasons::REPLACING_RUN,
            "the spec changed: the workers of the run before are being stopped".to_owned(),
        ));
    }
    begin(draft, &wanted, &Terms::default());
}

/// Begins a run: its name, and a status that knows nothing of the run before.
pub(super) fn begin(draft: &mut Draft<'_>, wanted: &Wanted, terms: &Terms) {
    let before = &draft.before;
    let last = before.run.as_ref();
    let place = wanted.place(before.output.as_deref(), draft.now);
    let outputs = outputs(before);
    let written = outputs.iter().find(|output| output.prefix == place.prefix);
    let mut replaces = written.map_or_else(Vec::new, |output| output.digests.clone());
    replaces.retain(|digest| *digest != wanted.digest);
    let now = OffsetDateTime::from_unix_timestamp_nanos(draft.now.as_nanosecond())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let attempt = last.and_then(|last| last.attempt).unwrap_or(0);
    let earlier = last.and_then(|last| last.name.parse().ok());
    let mut run = RunStatus {
        name: RunId::after(earlier.as_ref(), now, draft.observed.random).to_string(),
        pipeline_digest: Some(wanted.digest.clone()),
        attempt: Some(attempt.saturating_add(1)),
        replaces,
        redo_all: terms.redo_all,
        started_at: Some(Time(seconds(draft.now))),
        ..RunStatus::default()
    };
    wanted.complete(&mut run);
    let message = if place.is_chosen {
        format!(
            "run {} begins; spec.output.prefix is not set, so the sidecar goes to {}",
            run.name, place.prefix
        )
    } else {
        format!("run {} begins", run.name)
    };
    let token = terms.token.clone();
    draft.status = SidecarJobStatus {
        observed_generation: draft.status.observed_generation,
        output: Some(place.prefix),
        run: Some(run),
        last_handled_rerun: token.or_else(|| before.last_handled_rerun.clone()),
        outputs,
        ..SidecarJobStatus::default()
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

/// Where the object has written, the last run included. One that was refused has written nothing;
/// what it was to replace was written before it.
fn outputs(before: &SidecarJobStatus) -> Vec<OutputStatus> {
    let mut outputs = before.outputs.clone();
    if let (Some(prefix), Some(last)) = (&before.output, &before.run) {
        let is_known = |output: &OutputStatus| output.prefix == *prefix;
        let known = outputs.iter().position(is_known);
        let known = known.map(|position| outputs.remove(position).digests);
        let was_refused = last.finished_at.is_some() && !is_planned(before);
        let own = last.pipeline_digest.clone().filter(|_| !was_refused);
        let all = own.into_iter().chain(known.unwrap_or_default());
        let mut digests: Vec<String> = Vec::new();
        for digest in all.chain(last.replaces.clone()) {
            if !digests.contains(&digest) {
                digests.push(digest);
            }
        }
        digests.truncate(MOST_DIGESTS);
        if !digests.is_empty() {
            let prefix = prefix.clone();
            outputs.insert(0, OutputStatus { prefix, digests });
        }
    }
    outputs.truncate(MOST_OUTPUTS);
    outputs
}

fn is_planned(status: &SidecarJobStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|found| found.type_ == types::PLANNED && found.status == "True")
}

/// A run as its operator left it. What another release has not recorded, or in another way, is
/// what the spec says, unless the spec has changed since it was last looked at: no upgrade is a
/// change.
pub(super) fn adopt(
    draft: &mut Draft<'_>,
    mut run: RunStatus,
    wanted: Result<&Wanted, &String>,
) -> RunStatus {
    let Ok(wanted) = wanted else { return run };
    if frozen::is_recorded(&run) {
        return run;
    }
    let is_same_spec = draft.before.observed_generation == draft.object.metadata.generation
        && !draft.is_rejected();
    if !is_same_spec && run.pipeline_digest.as_ref() != Some(&wanted.digest) {
        return run;
    }
    wanted.complete(&mut run);
    if draft.was_true(types::PLANNED) {
        run.image = run.image.or_else(|| draft.default_image());
    }
    draft.status.run = Some(run.clone());
    run
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
