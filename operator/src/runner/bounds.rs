//! How much of what is beside an output the operator keeps in memory: whoever may write there
//! may write it.

use storage::state::StateError;
use storage::state::batch::Batch;

use super::trouble::Failed;

/// Items of a run, at most: a few hundred bytes each. Ten million shards are some 20,000.
pub(super) const ITEMS: usize = 100_000;
/// Files of batches of a run, at most.
pub(super) const BATCHES: usize = 20_000;
/// Different names of columns, or of reasons, of all reports of a run.
pub(super) const NAMES: usize = 256;
/// Bytes of the name of a holder in a message.
const HOLDER: usize = 253;

/// Refuses a run with more items than are kept.
pub(super) fn check_items(batches: &[Batch]) -> Result<(), Failed> {
    let items: usize = batches.iter().map(|batch| batch.items.len()).sum();
    if items <= ITEMS {
        return Ok(());
    }
    Err(Failed::Refused {
        reason: "RunUnreadable",
        message: format!(
            "its batches have {items} items, and no more than {ITEMS} are kept: they are none of \
             the operator's; find out who may write there"
        ),
    })
}

/// Whether a file is none of a worker's, so that somebody else writes there: the run is given up
/// rather than worked on with what it says.
pub(super) fn is_hostile(error: &StateError) -> bool {
    matches!(error, StateError::TooLarge { .. })
}

/// The beginning of a name that somebody else has written.
pub(super) fn name(text: &str) -> &str {
    &text[..text.floor_char_boundary(HOLDER)]
}
