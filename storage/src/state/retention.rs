//! What earlier runs left beside the output is kept for a while, for people and for what the
//! manifest names of it, and then removed.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use time::OffsetDateTime;

use super::error::Result;
use super::manifest::Manifest;
use super::{RunId, layout, limits};
use crate::store::Store;

/// Files of runs that are kept whatever their age, the last one's among them.
pub const KEPT_RUNS: usize = 10;

/// Files of runs that are kept whatever their number.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs that are kept at most, beside those that the manifest names parts of.
pub const MOST_RUNS: usize = 100;

/// Files that are removed at a time; the next run removes more.
const MOST_REMOVED: usize = 20_000;

/// Requests in flight.
const REMOVALS_IN_FLIGHT: usize = 16;

/// Removes the files of runs that are [`expired`]. For the holder of the lock, after it has sealed
/// `manifest`. Returns how many files.
///
/// # Errors
/// If the folder of runs can't be listed, or a file can't be removed.
pub async fn remove_expired(
    store: &dyn Store,
    manifest: &Manifest,
    now: OffsetDateTime,
) -> Result<usize> {
    let listed = store.list_bounded(layout::RUNS, limits::FOLDER).await?;
    let mut files: BTreeMap<RunId, Vec<String>> = BTreeMap::new();
    for object in listed {
        if let Some(run) = layout::parse_run(&object.key) {
            files.entry(run).or_default().push(object.key);
        }
    }
    let named: HashSet<&RunId> = manifest.parts.iter().map(|part| &part.run).collect();
    let runs: Vec<RunId> = files.keys().cloned().collect();
    let expired = expired(&runs, &manifest.run, &named, now);
    let keys: Vec<String> = expired
        .into_iter()
        .filter_map(|run| files.remove(run))
        .flatten()
        .take(MOST_REMOVED)
        .collect();
    let count = keys.len();
    stream::iter(keys)
        .map(|key| async move { store.delete(&key, None).await })
        .buffer_unordered(REMOVALS_IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(count)
}

/// Those of `runs`, which ascend, whose files are of no use any more: neither `last` nor a later
/// one, not one that the manifest names parts of, and beyond [`MOST_RUNS`], or both beyond
/// [`KEPT_RUNS`] and older than [`KEPT_FOR`].
pub fn expired<'a>(
    runs: &'a [RunId],
    last: &RunId,
    named: &HashSet<&RunId>,
    now: OffsetDateTime,
) -> Vec<&'a RunId> {
    let oldest = RunId::new(now - KEPT_FOR, 0);
    let newest_first = runs.iter().rev().filter(|run| !named.contains(run));
    let mut expired: Vec<&RunId> = newest_first
        .enumerate()
        .filter(|(position, run)| {
            let is_old = *position >= KEPT_RUNS && **run < oldest;
            **run < *last && (is_old || *position >= MOST_RUNS)
        })
        .map(|(_, run)| run)
        .collect();
    expired.reverse();
    expired
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2025-06-30 12:00 UTC);

    fn run(age: Duration) -> RunId {
        RunId::new(NOW - age, 0)
    }

    fn runs(count: u64, apart: Duration) -> Vec<RunId> {
        let ages = (0..count).rev();
        ages.map(|age| run(apart * u32::try_from(age).unwrap()))
            .collect()
    }

    #[test]
    fn a_few_runs_stay_whatever_their_age() {
        let runs = runs(30, Duration::from_secs(30 * 24 * 3600));
        let last = runs.last().unwrap();
        let gone = expired(&runs, last, &HashSet::new(), NOW);
        assert_eq!(gone, runs[..20].iter().collect::<Vec<_>>());
        assert!(expired(&runs[20..], last, &HashSet::new(), NOW).is_empty());
        assert!(expired(&[], last, &HashSet::new(), NOW).is_empty());
    }

    #[test]
    fn young_runs_stay_up_to_a_number() {
        let runs = runs(150, Duration::from_secs(600));
        let gone = expired(&runs, &runs[149], &HashSet::new(), NOW);
        assert_eq!(gone, runs[..50].iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_the_manifest_names_stays_and_so_does_the_last_run() {
        let runs = runs(30, Duration::from_secs(30 * 24 * 3600));
        let named: HashSet<&RunId> = [&runs[0], &runs[7]].into();
        let gone = expired(&runs, &runs[29], &named, NOW);
        assert!(!gone.contains(&&runs[0]) && !gone.contains(&&runs[7]));
        assert_eq!(gone.len(), 18);
        // Runs that came after the one that is sealed are none of its affair.
        let gone = expired(&runs, &runs[3], &HashSet::new(), NOW);
        assert_eq!(gone, runs[..3].iter().collect::<Vec<_>>());
    }
}
