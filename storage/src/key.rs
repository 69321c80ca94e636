//! Keys: relative to a store's prefix, opaque but for the separator.

use crate::error::{Error, Result};

/// How the names of unfinished local files end. No object may be called so.
pub(crate) const TEMPORARY_SUFFIX: &str = ".sidecar-tmp";

/// The writer lock, relative to the prefix that it locks.
pub(crate) const WRITER_LOCK: &str = "_sidecar/writer.json";

/// Refuses keys that are no object's, or that would mean different objects to different stores.
pub(crate) fn check(store_uri: &str, key: &str) -> Result<()> {
    let refuse = |reason: &str| Err(Error::invalid(format!("{store_uri}{key}"), reason));
    if key.is_empty() {
        return refuse("an object's key can't be empty");
    }
    if key.ends_with(TEMPORARY_SUFFIX) {
        return refuse("names that end in `.sidecar-tmp` are kept for unfinished files");
    }
    check_parts(key).or_else(refuse)
}

/// Refuses folders that do not end in `/`; the empty folder is the prefix itself.
pub(crate) fn check_folder(store_uri: &str, folder: &str) -> Result<()> {
    let refuse = |reason: &str| Err(Error::invalid(format!("{store_uri}{folder}"), reason));
    if folder.is_empty() {
        return Ok(());
    }
    match folder.strip_suffix('/') {
        Some(parts) => check_parts(parts).or_else(refuse),
        None => refuse("a folder ends in `/`"),
    }
}

fn check_parts(key: &str) -> Result<(), &'static str> {
    if key.contains('\0') {
        return Err("a key can't hold a zero byte");
    }
    for part in key.split('/') {
        match part {
            "" => return Err("a key has no empty parts: no `/` at an end, no `//`"),
            "." | ".." => return Err("a key has no `.` or `..` parts"),
            _ => {}
        }
    }
    Ok(())
}

/// What a listing does with the object of this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A shard.
    Shard,
    /// The writer lock of a prefix below this one.
    NestedLock,
    /// Anything else.
    Other,
}

impl Role {
    /// The role of the object of this (relative) key.
    pub(crate) fn of(key: &str) -> Self {
        let hidden = key.split('/').any(is_hidden);
        if !hidden && key.ends_with(".parquet") {
            return Self::Shard;
        }
        let lock_of = key.strip_suffix(WRITER_LOCK);
        match lock_of.and_then(|folder| folder.strip_suffix('/')) {
            Some(folder) if !folder.split('/').any(is_hidden) => Self::NestedLock,
            _ => Self::Other,
        }
    }
}

/// Whether readers of Parquet folders pass over this name.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with(['_', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        for (key, role) in [
            ("a.parquet", Role::Shard),
            ("a/b c+%=#é.parquet", Role::Shard),
            ("x.parquet/part-0.parquet", Role::Shard),
            ("a.parquet/", Role::Other),
            ("a.PARQUET", Role::Other),
            ("_a.parquet", Role::Other),
            ("a/.b/c.parquet", Role::Other),
            ("a/_b/c.parquet", Role::Other),
            ("_sidecar/writer.json", Role::Other),
            ("a/_sidecar/writer.json", Role::NestedLock),
            ("a/b/_sidecar/writer.json", Role::NestedLock),
            ("a_sidecar/writer.json", Role::Other),
            ("_a/_sidecar/writer.json", Role::Other),
        ] {
            assert_eq!(Role::of(key), role, "{key}");
        }
    }

    #[test]
    fn keys_that_are_refused() {
        for key in [
            "",
            "/a",
            "a/",
            "a//b",
            "a/../b",
            "..",
            "./a",
            "a\0b",
            "a.sidecar-tmp",
        ] {
            assert!(check("s3://b/", key).is_err(), "{key:?}");
        }
        for key in ["a", "a/b", "a b", "..a", "a+b%20=#é"] {
            assert!(check("s3://b/", key).is_ok(), "{key:?}");
        }
        assert!(check_folder("s3://b/", "").is_ok());
        assert!(check_folder("s3://b/", "a/b/").is_ok());
        assert!(check_folder("s3://b/", "a").is_err());
        assert!(check_folder("s3://b/", "/").is_err());
    }
}
