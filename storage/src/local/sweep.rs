//! Removing what killed writers left.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::Root;
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key::TEMPORARY_SUFFIX;

/// Removes temporary files below the root; links to folders are not followed.
pub(super) fn sweep(root: &Root) -> Result<u64> {
    let mut removed = 0;
    let mut folders: Vec<PathBuf> = vec![root.path.clone()];
    while let Some(folder) = folders.pop() {
        let failed = |error| Error::local(folder.to_string_lossy(), "sweep it", error);
        Counters::add(&root.counters.list, 1);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if !kind.is_file()
                || !name.starts_with(b".")
                || !name.ends_with(TEMPORARY_SUFFIX.as_bytes())
            {
                continue;
            }
            Counters::add(&root.counters.delete, 1);
            match fs::remove_file(entry.path()) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
    Ok(removed)
}
