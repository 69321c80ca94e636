//! The version of a file, from what the file system keeps.
//!
//! A version is modification time, size and inode. Alone that is not enough: clocks of file
//! systems tick every few milliseconds and inodes are used again at once, so a file that is
//! replaced twice within a tick could look like the first one. Files that we write therefore
//! get their time from us: in nanoseconds, never the same twice in a process, and later than
//! that of the file they replace. The change time is left out on purpose: `chmod` or a hard
//! link for a backup does not make new bytes.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};

use crate::store::{ETag, ObjectMeta};

const NANOSECONDS: i64 = 1_000_000_000;

/// The version of the file that this metadata is of.
pub(super) fn etag(metadata: &Metadata) -> ETag {
    let modified = modified(metadata);
    let (size, inode) = (metadata.size(), metadata.ino());
    ETag(Arc::from(format!("{modified:x}-{size:x}-{inode:x}")))
}

/// What a listing says of the file.
pub(super) fn object(key: String, metadata: &Metadata) -> ObjectMeta {
    ObjectMeta {
        key,
        size: metadata.size(),
        etag: etag(metadata),
    }
}

fn modified(metadata: &Metadata) -> i64 {
    metadata
        .mtime()
        .saturating_mul(NANOSECONDS)
        .saturating_add(metadata.mtime_nsec())
}

/// Gives a new file a time that no other file of this process has.
pub(super) fn stamp(file: &File) -> std::io::Result<()> {
    set_modified(file, unique_now())
}

/// Makes a new file's time later than that of the file it replaces, whatever the clocks say
/// and however coarse the file system keeps them. Returns the new file's metadata.
pub(super) fn stamp_later(file: &File, replaced: &Metadata) -> std::io::Result<Metadata> {
    let before = modified(replaced);
    for step in [1, 1_000, 1_000_000, NANOSECONDS, 2 * NANOSECONDS] {
        let metadata = file.metadata()?;
        if modified(&metadata) > before {
            return Ok(metadata);
        }
        set_modified(file, before.saturating_add(step))?;
    }
    file.metadata()
}

fn set_modified(file: &File, nanoseconds: i64) -> std::io::Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: nanoseconds.div_euclid(NANOSECONDS),
            tv_nsec: nanoseconds.rem_euclid(NANOSECONDS) as _,
        },
    };
    Ok(futimens(file, &times)?)
}

fn unique_now() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let now = i64::try_from(now.as_nanos()).unwrap_or(0);
    let next = |last: i64| now.max(last + 1);
    match LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(next(last))
    }) {
        Ok(last) | Err(last) => next(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_never_given_twice() {
        let times: Vec<i64> = (0..1000).map(|_| unique_now()).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_replacement_is_later_even_if_the_clock_went_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = File::create(folder.path().join("old")).expect("a file");
        let in_an_hour = unique_now() + 3600 * NANOSECONDS;
        set_modified(&old, in_an_hour).expect("a time");
        let new = File::create(folder.path().join("new")).expect("a file");
        stamp(&new).expect("a time");
        let replaced = old.metadata().expect("metadata");
        let metadata = stamp_later(&new, &replaced).expect("a time");
        assert!(modified(&metadata) > in_an_hour);
    }
}
