//! Making renames durable: one `fsync` of a folder for all that wait for it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The folders that somebody is waiting for.
#[derive(Debug, Default)]
pub(super) struct FolderSync {
    waited_for: Mutex<HashMap<PathBuf, Arc<Folder>>>,
}

#[derive(Debug, Default)]
struct Folder {
    /// Changes made so far.
    changes: AtomicU64,
    /// How many of them are on disk.
    durable: Mutex<u64>,
}

impl FolderSync {
    /// Returns once the change that the caller has just made to `folder` is on disk.
    pub(super) fn sync(&self, folder: &Path) -> io::Result<()> {
        let state = {
            let mut waited_for = self.lock();
            Arc::clone(waited_for.entry(folder.to_path_buf()).or_default())
        };
        let result = state.sync(folder);
        let mut waited_for = self.lock();
        // Two owners are the map and ourselves: nobody else waits, and nobody can start to.
        if Arc::strong_count(&state) == 2 {
            waited_for.remove(folder);
        }
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Arc<Folder>>> {
        self.waited_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Folder {
    fn sync(&self, folder: &Path) -> io::Result<()> {
        let mine = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if *durable >= mine {
            return Ok(());
        }
        let covered = self.changes.load(Ordering::SeqCst);
        File::open(folder)?.sync_all()?;
        *durable = covered;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_forgotten_once_durable() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = FolderSync::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| folders.sync(folder.path()).expect("a sync"));
            }
        });
        folders.sync(folder.path()).expect("a sync");
        assert!(folders.lock().is_empty());
    }
}
