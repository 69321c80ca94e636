//! Rewriting a chunk's report, beside whoever else may work on the chunk.

use std::cmp::Ordering;
use std::sync::Arc;

use time::OffsetDateTime;

use super::document;
use super::error::{Result, StateError};
use super::layout;
use super::report::{ChunkReport, ChunkState};
use crate::store::{ETag, PutCondition, Store};

/// How often a report that somebody else has rewritten meanwhile is met with another try.
const WRITE_ATTEMPTS: usize = 5;

/// Rewrites a chunk's report: one request each time.
///
/// Two workers may have one chunk: a pod that is about to die beside the one that replaces it,
/// or a further attempt. The report is then that of the one who [outranks](outranks) the other.
#[derive(Debug)]
pub struct ReportWriter {
    store: Arc<dyn Store>,
    last: Option<ETag>,
}

impl ReportWriter {
    /// A writer of one chunk's report.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: None }
    }

    /// Writes the report with `updated_at` = `now` and no more than [`MAX_FAILURES`](super::report::MAX_FAILURES) failures,
    /// unless there is one that outranks it.
    ///
    /// # Errors
    /// If it can't be written.
    pub async fn write(&mut self, report: &mut ChunkReport, now: OffsetDateTime) -> Result<()> {
        report.updated_at = super::clock::to_milliseconds(now);
        report.trim();
        let key = layout::chunk_report(&report.run, report.chunk);
        let bytes = document::encode(&key, report)?;
        let mut attempt = 1;
        loop {
            let condition = match self.last.take() {
                Some(etag) => PutCondition::Replace(etag),
                None => PutCondition::Create,
            };
            match document::put(&*self.store, &key, bytes.clone(), condition).await {
                Ok(published) => {
                    self.last = Some(published.etag);
                    return Ok(());
                }
                Err(error) if attempt < WRITE_ATTEMPTS && document::is_conflict(&error) => {
                    attempt += 1;
                }
                Err(error) => return Err(error.into()),
            }
            // One that is damaged, or of another version, says nothing.
            match document::read::<ChunkReport>(&*self.store, &key).await {
                Ok(None) => {}
                Ok(Some((_, found))) if outranks(&found, report) => return Ok(()),
                Ok(Some((meta, _))) => self.last = Some(meta.etag),
                Err(StateError::Storage(error)) => return Err(error.into()),
                Err(_) => self.last = Some(self.store.head(&key).await?.etag),
            }
        }
    }
}

/// Whether a report stays though `mine` is about the same chunk: it is of a later attempt; or
/// of the same, and done while mine isn't; or of a worker that started later.
pub fn outranks(other: &ChunkReport, mine: &ChunkReport) -> bool {
    let is_done = |report: &ChunkReport| report.state == ChunkState::Done;
    let order = other
        .attempt
        .cmp(&mine.attempt)
        .then(is_done(other).cmp(&is_done(mine)))
        .then(other.started_at.cmp(&mine.started_at));
    order == Ordering::Greater
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::state::RunId;

    #[test]
    fn the_report_of_the_latest_worker_stays() {
        let early = datetime!(2025-06-01 10:00 UTC);
        let late = datetime!(2025-06-01 10:05 UTC);
        let report = |attempt, state, started| {
            let run = RunId::new(early, 0);
            let mut report = ChunkReport::new(run, "d".into(), 0, "pod".into(), 9, started);
            (report.attempt, report.state) = (attempt, state);
            report
        };
        use ChunkState::{Done, Running, Stopped};
        for (other, mine, expected) in [
            // The same worker, or the one chunk of a run on one machine.
            (
                report(None, Running, early),
                report(None, Done, early),
                false,
            ),
            (
                report(Some(1), Running, early),
                report(Some(1), Running, early),
                false,
            ),
            // A pod, and the one that replaces it.
            (
                report(Some(1), Running, late),
                report(Some(1), Running, early),
                true,
            ),
            (
                report(Some(1), Running, early),
                report(Some(1), Running, late),
                false,
            ),
            (
                report(Some(1), Running, late),
                report(Some(1), Done, early),
                false,
            ),
            (
                report(Some(1), Done, early),
                report(Some(1), Running, late),
                true,
            ),
            (
                report(Some(1), Done, late),
                report(Some(1), Stopped, early),
                true,
            ),
            (
                report(Some(1), Done, late),
                report(Some(1), Done, early),
                true,
            ),
            // A further attempt.
            (
                report(Some(2), Running, late),
                report(Some(1), Done, early),
                true,
            ),
            (
                report(Some(1), Done, early),
                report(Some(2), Running, late),
                false,
            ),
        ] {
            assert_eq!(outranks(&other, &mine), expected, "{other:?} and {mine:?}");
        }
    }
}
