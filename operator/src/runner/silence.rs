//! Items of which nothing has been heard for long. Pure; the time is handed in.

use std::collections::HashMap;
use std::time::Duration;

use storage::ETag;

/// Most that a look adds: between two that lie further apart the store was away, for workers, too.
const LONGEST_GAP_MS: i64 = 60_000;

/// How long the reports of items have stood still.
#[derive(Debug)]
pub(super) struct Silence {
    after_ms: i64,
    last_look_ms: Option<i64>,
    /// By first chunk: the version of the report, and how long it has been that.
    quiet: HashMap<u64, (Option<ETag>, i64)>,
}

impl Silence {
    pub(super) fn new(after: Duration) -> Self {
        Self {
            after_ms: i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            last_look_ms: None,
            quiet: HashMap::new(),
        }
    }

    /// Takes in a look at `now_ms` at unfinished items, each with the version of its report; those
    /// that have been silent for too long, ascending.
    pub(super) fn look(&mut self, now_ms: i64, items: Vec<(u64, Option<ETag>)>) -> Vec<u64> {
        let gap = self.last_look_ms.map_or(0, |last| now_ms - last);
        let gap = gap.clamp(0, LONGEST_GAP_MS);
        self.last_look_ms = Some(now_ms);
        let before = std::mem::take(&mut self.quiet);
        let mut silent = Vec::new();
        for (first, version) in items {
            let quiet = match before.get(&first) {
                Some((known, quiet)) if *known == version => quiet + gap,
                _ => 0,
            };
            if quiet >= self.after_ms {
                silent.push(first);
            }
            self.quiet.insert(first, (version, quiet));
        }
        silent.sort_unstable();
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Option<ETag> {
        Some(ETag::from(text.to_owned()))
    }

    #[test]
    fn an_item_whose_report_stands_still_is_silent_until_it_changes() {
        let mut silence = Silence::new(Duration::from_secs(30));
        let mut silent = Vec::new();
        for look in 0..5 {
            let beating = version(&format!("v{look}"));
            let items = vec![(7, version("same")), (3, beating), (9, None)];
            silent = silence.look(look * 10_000, items);
            assert_eq!(!silent.is_empty(), look >= 3, "{look}");
        }
        assert_eq!(silent, [7, 9]);
        let items = vec![(7, version("another")), (9, None)];
        assert_eq!(silence.look(50_000, items), [9]);
        // One that was done meanwhile is begun again: it has its time.
        assert!(silence.look(60_000, Vec::new()).is_empty());
        assert!(silence.look(70_000, vec![(9, None)]).is_empty());
    }

    #[test]
    fn a_store_that_was_away_makes_nobody_silent() {
        let mut silence = Silence::new(Duration::from_secs(300));
        silence.look(0, vec![(1, version("a"))]);
        assert!(silence.look(3_600_000, vec![(1, version("a"))]).is_empty());
    }
}
