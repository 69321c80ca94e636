//! A namespace that is being deleted, with objects in it that are not yet.

use super::draft::Draft;
use super::standing::{Course, Phase, Standing};
use crate::reasons;

/// The Jobs go first: as long as one is there the Job controller keeps its ended pods for the sake
/// of others in their place, which can't be made any more, and the namespace would never be gone.
pub(super) fn decide(draft: &mut Draft<'_>) {
    draft.wind_down();
    draft.look_again_in(5);
    draft.stand(Standing::new(
        Phase::Pending,
        Course::Moving,
        reasons::NAMESPACE_GOING,
        "the namespace is being deleted: the workers are being stopped".to_owned(),
    ));
}
