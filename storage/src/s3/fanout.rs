//! How many neighbouring folders are listed by one run of requests.
//!
//! A folder of its own costs at least one request, which is fine if it holds a page of keys
//! and wasteful if it holds three. What folders of a depth have held so far tells how many of
//! them fill a page.

use std::sync::{Mutex, PoisonError};

/// Keys in a page of a listing.
const PAGE: f64 = 1000.0;

/// At most this many folders in one run.
const LARGEST_GROUP: f64 = 1000.0;

/// What has been seen of folders, by their depth below the root of the listing.
#[derive(Debug, Default)]
pub(super) struct Fanout {
    keys_in_a_folder: Mutex<Vec<Option<f64>>>,
}

impl Fanout {
    /// `folders` neighbours of this depth held `keys` keys, sub-folders included.
    pub(super) fn saw_keys(&self, depth: usize, folders: usize, keys: usize) {
        if folders > 0 {
            self.saw(depth, keys as f64 / folders as f64);
        }
    }

    /// A folder of this depth holds `keys` keys and, beside them, `folders` sub-folders.
    pub(super) fn saw_folders(&self, depth: usize, folders: usize, keys: usize) {
        let below = self.expected(depth + 1).unwrap_or(PAGE);
        self.saw(depth, below * folders as f64 + keys as f64);
    }

    /// How many neighbours of this depth to list as one.
    pub(super) fn group(&self, depth: usize) -> usize {
        match self.expected(depth) {
            None => 1,
            Some(keys) => (PAGE / keys.max(1.0)).clamp(1.0, LARGEST_GROUP) as usize,
        }
    }

    fn expected(&self, depth: usize) -> Option<f64> {
        let depths = self.lock();
        depths.get(depth).copied().flatten()
    }

    fn saw(&self, depth: usize, keys: f64) {
        let mut depths = self.lock();
        if depths.len() <= depth {
            depths.resize(depth + 1, None);
        }
        let before = depths[depth].unwrap_or(keys);
        depths[depth] = Some(before * 0.75 + keys * 0.25);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<f64>>> {
        self.keys_in_a_folder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_folders_are_grouped_once_they_are_known() {
        let fanout = Fanout::default();
        assert_eq!(fanout.group(1), 1);
        fanout.saw_keys(1, 1, 4);
        assert_eq!(fanout.group(1), 250);
        assert_eq!(fanout.group(2), 1);
    }

    #[test]
    fn large_folders_stay_alone() {
        let fanout = Fanout::default();
        for _ in 0..20 {
            fanout.saw_keys(1, 1, 5000);
        }
        assert_eq!(fanout.group(1), 1);
    }

    #[test]
    fn folders_of_folders_count_what_is_below() {
        let fanout = Fanout::default();
        fanout.saw_folders(1, 10, 0);
        assert_eq!(fanout.group(1), 1);
        fanout.saw_keys(2, 1, 2);
        for _ in 0..40 {
            fanout.saw_folders(1, 10, 0);
        }
        assert!(fanout.group(1) > 30);
    }
}
