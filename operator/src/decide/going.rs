//! A namespace that is being deleted, with objects in it that are not yet.

use super::draft::Draft;
use super::standing::{Course, Phase, Standing};
use crate::model::{Action, LockFacts};
use crate::reasons;

/// The Jobs go first: as long as one is there the Job controller keeps its ended pods for the sake
/// of others in their place, which can't be made any more, and the namespace would never be gone.
pub(super) fn decide(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    for job in &observed.jobs {
        draft.delete(job);
    }
    let is_held = observed
        .run
        .as_ref()
        .is_some_and(|facts| facts.lock != LockFacts::Released);
    if observed.jobs.is_empty() && is_held {
        draft.actions.push(Action::Release);
    }
    draft.look_again_in(5);
    draft.stand(Standing::new(
        Phase::Pending,
        Course::Moving,
        reasons::NAMESPACE_GOING,
        "the namespace is being deleted: the workers are being stopped".to_owned(),
    ));
}
