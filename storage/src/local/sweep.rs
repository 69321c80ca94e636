//! Finding and removing what killed writers left.

use std::fs;
use std::io;

use super::Root;
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key::TEMPORARY_SUFFIX;
use crate::store::Leftover;

/// Leftovers that are told of at once.
const MOST: usize = 10_000;

/// Temporary files below the root; links to folders are not followed. Their ids are their keys.
pub(super) fn leftovers(root: &Root) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let failed = |error| Error::local(root.uri_of(&folder), "look for what was left", error);
        Counters::add(&root.counters.list, 1);
        let entries = match fs::read_dir(root.path_of(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            // A name that is not UTF-8 is not of ours.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if kind.is_dir() {
                folders.push(format!("{folder}{name}/"));
                continue;
            }
            if kind.is_file() && name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX) {
                found.push(Leftover {
                    key: target_of(&name).map(|target| format!("{folder}{target}")),
                    id: format!("{folder}{name}"),
                });
                if found.len() == MOST {
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}

/// The name of the file that a temporary one was to become; none if it was cut.
fn target_of(name: &str) -> Option<&str> {
    let name = name.strip_prefix('.')?.strip_suffix(TEMPORARY_SUFFIX)?;
    let (target, _) = name.rsplit_once('.')?;
    (target.len() < super::publish::LONGEST_NAME - 3).then_some(target)
}

pub(super) fn sweep(root: &Root, leftovers: &[Leftover]) -> Result<u64> {
    let mut removed = 0;
    for leftover in leftovers {
        Counters::add(&root.counters.delete, 1);
        match fs::remove_file(root.path_of(&leftover.id)) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let uri = root.uri_of(&leftover.id);
                return Err(Error::local(uri, "remove what was left", error));
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_tells_what_it_was_to_become() {
        let suffix = "0123456789abcdef.sidecar-tmp";
        let named = |name: &str| format!(".{name}.{suffix}");
        assert_eq!(target_of(&named("a.parquet")), Some("a.parquet"));
        assert_eq!(target_of(&named(&"x".repeat(200))), None);
        assert_eq!(target_of(".y.sidecar-tmp"), None);
    }
}
