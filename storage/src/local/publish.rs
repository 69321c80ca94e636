//! Writing files so that they appear whole, once, and stay.
//!
//! A new file is written beside its final name, made durable, and renamed with a rename that
//! refuses to replace. Where an object is replaced or deleted on condition, comparing and
//! acting happen under a lock on the folder, which all such calls of all processes take.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::{Root, read, version};
use crate::content::sha256_hex;
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key::TEMPORARY_SUFFIX;
use crate::store::{ETag, Payload, Published, PutCondition};

/// How often a write starts anew because its temporary file was swept away by the holder of
/// the prefix, who took it for a dead writer's.
const SWEPT_ATTEMPTS: u32 = 5;

pub(super) fn put(
    root: &Root,
    key: &str,
    payload: &Payload,
    condition: &PutCondition,
) -> Result<Published> {
    let target = Target::of(root, key)?;
    let mut swept = 0;
    loop {
        Counters::add(&root.counters.put, 1);
        let outcome = match condition {
            PutCondition::Create => create(root, &target, payload),
            PutCondition::Replace(expected) => replace(root, &target, payload, expected),
        };
        let condition_broken = match outcome {
            Ok(Some(published)) => {
                Counters::add(&root.counters.bytes_written, payload.bytes.len() as u64);
                root.folders
                    .sync(&target.folder)
                    .map_err(|error| target.error("make it durable", error))?;
                return Ok(published);
            }
            Ok(None) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(target.error("write it", error)),
        };
        if condition_broken {
            return found(root, key, payload, condition);
        }
        swept += 1;
        if swept == SWEPT_ATTEMPTS {
            let error = io::Error::other("its temporary file or folder keeps being removed");
            return Err(target.error("write it", error));
        }
    }
}

pub(super) fn delete(root: &Root, key: &str, expected: Option<&ETag>) -> Result<()> {
    let target = Target::of(root, key)?;
    Counters::add(&root.counters.delete, 1);
    let locked = match lock(&target.folder) {
        Ok(locked) => locked,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(target.error("lock its folder", error)),
    };
    let removed = remove(&target.path, expected);
    drop(locked);
    match removed {
        Ok(true) => root
            .folders
            .sync(&target.folder)
            .map_err(|error| target.error("make its removal durable", error)),
        Ok(false) => Err(Error::Changed { uri: target.uri }),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(target.error("delete it", error)),
    }
}

/// Whether the file had the expected version and is gone.
fn remove(path: &Path, expected: Option<&ETag>) -> io::Result<bool> {
    if let Some(etag) = expected
        && *etag != version::etag(&fs::metadata(path)?)
    {
        return Ok(false);
    }
    fs::remove_file(path)?;
    Ok(true)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

struct Target {
    uri: String,
    path: PathBuf,
    folder: PathBuf,
    name: String,
}

impl Target {
    fn of(root: &Root, key: &str) -> Result<Self> {
        let path = root.path_of(key);
        let uri = root.uri_of(key);
        let name = key.rsplit('/').next().unwrap_or(key).to_string();
        let Some(folder) = path.parent().map(Path::to_path_buf) else {
            return Err(Error::invalid(
                uri,
                "the root of the file system is no object",
            ));
        };
        Ok(Self {
            uri,
            path,
            folder,
            name,
        })
    }

    fn error(&self, action: &'static str, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => Error::invalid(
                &self.uri,
                "there is a folder, or a file as its folder, in its place",
            ),
            _ => Error::local(&self.uri, action, error),
        }
    }
}

/// None if there is a file already; `NotFound` if the temporary file was swept away.
fn create(root: &Root, target: &Target, payload: &Payload) -> io::Result<Option<Published>> {
    let mut temporary = Temporary::write(root, target, payload)?;
    let metadata = temporary.file.metadata()?;
    if !move_without_replacing(&temporary.path, &target.path)? {
        return Ok(None);
    }
    temporary.published = true;
    Ok(Some(Published {
        etag: version::etag(&metadata),
        size: metadata.len(),
        already_there: false,
    }))
}

/// None if the file has another version or is gone.
fn replace(
    root: &Root,
    target: &Target,
    payload: &Payload,
    expected: &ETag,
) -> io::Result<Option<Published>> {
    let mut temporary = Temporary::write(root, target, payload)?;
    let locked = lock(&target.folder)?;
    let current = match fs::metadata(&target.path) {
        Ok(current) => current,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if version::etag(&current) != *expected {
        return Ok(None);
    }
    let metadata = version::stamp_later(&temporary.file, &current)?;
    fs::rename(&temporary.path, &target.path)?;
    temporary.published = true;
    drop(locked);
    Ok(Some(Published {
        etag: version::etag(&metadata),
        size: metadata.len(),
        already_there: false,
    }))
}

/// Whether the file at `from` is now at `to`; false if something is there already.
fn move_without_replacing(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(true),
        Err(Errno::EXIST) => return Ok(false),
        // File systems that don't know the flag: a second name refuses to replace as well.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        Err(errno) => return Err(errno.into()),
    }
    match fs::hard_link(from, to) {
        Ok(()) => {
            fs::remove_file(from)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The condition did not hold: success all the same if the very bytes are there.
fn found(root: &Root, key: &str, payload: &Payload, condition: &PutCondition) -> Result<Published> {
    let broken = || condition.broken(root.uri_of(key));
    let meta = match read::head(root, key) {
        Ok(meta) => meta,
        Err(Error::NotFound { .. }) if root.path_of(key).is_dir() => {
            return Err(Error::invalid(
                root.uri_of(key),
                "there is a folder in its place",
            ));
        }
        Err(Error::NotFound { .. }) => return Err(broken()),
        Err(error) => return Err(error),
    };
    if meta.size != payload.bytes.len() as u64 {
        return Err(broken());
    }
    let (meta, bytes) = match read::whole(root, key) {
        Ok(read) => read,
        Err(Error::NotFound { .. }) => return Err(broken()),
        Err(error) => return Err(error),
    };
    if sha256_hex(&bytes) != payload.sha256 {
        return Err(broken());
    }
    Ok(Published {
        etag: meta.etag,
        size: meta.size,
        already_there: true,
    })
}

/// A lock on a folder that other processes respect too; released when dropped.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A complete file that nobody sees yet; removed unless published.
struct Temporary {
    path: PathBuf,
    file: File,
    published: bool,
}

impl Temporary {
    fn write(root: &Root, target: &Target, payload: &Payload) -> io::Result<Self> {
        let path = target.folder.join(temporary_name(&target.name));
        let open = || OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_folders(root, &target.folder)?;
                open()?
            }
            opened => opened?,
        };
        let mut temporary = Self {
            path,
            file,
            published: false,
        };
        temporary.file.write_all(&payload.bytes)?;
        version::stamp(&temporary.file)?;
        temporary.file.sync_all()?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// `.<name>.<random>.sidecar-tmp`, the name cut where it would not fit.
fn temporary_name(name: &str) -> String {
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(
        ".{}.{:016x}{TEMPORARY_SUFFIX}",
        &name[..end],
        rand::random::<u64>()
    )
}

/// Makes the folder and those above it, each durable in its parent.
fn create_folders(root: &Root, folder: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut upper = folder;
    while !upper.is_dir() {
        missing.push(upper);
        match upper.parent() {
            Some(parent) => upper = parent,
            None => break,
        }
    }
    for path in missing.into_iter().rev() {
        match fs::create_dir(path) {
            Ok(()) => {}
            // Somebody else was faster, which is as good; a file in its place shows later.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if let Some(parent) = path.parent() {
            root.folders.sync(parent)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_fit_and_differ() {
        let long = "é".repeat(127);
        let name = temporary_name(&long);
        assert!(name.len() <= 255 && name.starts_with(".é") && name.ends_with(TEMPORARY_SUFFIX));
        assert_ne!(name, temporary_name(&long));
    }
}
