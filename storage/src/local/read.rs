//! Reading files by position.

use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use super::{Root, version};
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::ranges::check_within;
use crate::store::{ETag, ObjectMeta};

pub(super) fn head(root: &Root, key: &str) -> Result<ObjectMeta> {
    Counters::add(&root.counters.head, 1);
    let metadata = fs::metadata(root.path_of(key)).map_err(|error| read_error(root, key, error))?;
    if !metadata.is_file() {
        return Err(Error::NotFound {
            uri: root.uri_of(key),
        });
    }
    Ok(version::object(key.to_string(), &metadata))
}

pub(super) fn whole(root: &Root, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)> {
    let (file, metadata) = open(root, key)?;
    Error::check_size(|| root.uri_of(key), metadata.len(), limit)?;
    let bytes = read_range(root, key, &file, 0..metadata.len())?;
    check_unchanged(root, key, &file, &metadata)?;
    Ok((version::object(key.to_string(), &metadata), bytes))
}

pub(super) fn ranges(
    root: &Root,
    key: &str,
    ranges: &[Range<u64>],
    expected: Option<&ETag>,
) -> Result<Vec<Bytes>> {
    let (file, metadata) = open(root, key)?;
    if expected.is_some_and(|etag| *etag != version::etag(&metadata)) {
        return Err(Error::Changed {
            uri: root.uri_of(key),
        });
    }
    let mut parts = Vec::with_capacity(ranges.len());
    for range in ranges {
        check_within(range, metadata.len())
            .map_err(|reason| Error::invalid(root.uri_of(key), reason))?;
        parts.push(read_range(root, key, &file, range.clone())?);
    }
    check_unchanged(root, key, &file, &metadata)?;
    Ok(parts)
}

fn open(root: &Root, key: &str) -> Result<(File, Metadata)> {
    let file = File::open(root.path_of(key)).map_err(|error| read_error(root, key, error))?;
    let metadata = file
        .metadata()
        .map_err(|error| read_error(root, key, error))?;
    if !metadata.is_file() {
        return Err(Error::NotFound {
            uri: root.uri_of(key),
        });
    }
    Ok((file, metadata))
}

/// Our own writes never change an open file, but other programs' may.
fn check_unchanged(root: &Root, key: &str, file: &File, before: &Metadata) -> Result<()> {
    let after = file
        .metadata()
        .map_err(|error| read_error(root, key, error))?;
    if version::etag(&after) != version::etag(before) {
        return Err(Error::Changed {
            uri: root.uri_of(key),
        });
    }
    Ok(())
}

fn read_range(root: &Root, key: &str, file: &File, range: Range<u64>) -> Result<Bytes> {
    Counters::add(&root.counters.get, 1);
    let length = usize::try_from(range.end - range.start)
        .map_err(|_| Error::invalid(root.uri_of(key), "the range is too large for this machine"))?;
    // Memory is read into as it is, without being zeroed first.
    let mut bytes: Vec<u8> = Vec::with_capacity(length);
    while bytes.len() < length {
        let position = range.start + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), position) {
            Ok(0) => {
                return Err(Error::Changed {
                    uri: root.uri_of(key),
                });
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(read_error(root, key, errno.into())),
        }
    }
    bytes.truncate(length);
    Counters::add(&root.counters.bytes_read, length as u64);
    Ok(Bytes::from(bytes))
}

pub(super) fn read_error(root: &Root, key: &str, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound
        && let Ok(target) = fs::read_link(root.path_of(key))
    {
        return Error::invalid(
            root.uri_of(key),
            format!("it is a link to {}, which is not there", target.display()),
        );
    }
    // A part of the path that is a file means that there is no object below it.
    let error = match error.kind() {
        io::ErrorKind::NotADirectory => io::ErrorKind::NotFound.into(),
        _ => error,
    };
    Error::local(root.uri_of(key), "read it", error)
}
