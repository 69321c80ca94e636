//! Writing files so that they appear whole, once, and stay.
//!
//! A new file is written beside its final name, made durable, and renamed with a rename that
//! refuses to replace. Where an object is replaced or deleted on condition, comparing and
//! acting happen under a lock on the folder, which all such calls of all processes take. Leave to
//! publish is looked at on the same thread right before the rename: a process that was stopped
//! for however long in between finds that it has run out.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::{Root, blocking, read, version};
use crate::content::sha256_hex;
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key::TEMPORARY_SUFFIX;
use crate::store::{ETag, Payload, Permit, Published, PutCondition};

/// How often a write starts anew because its temporary file was swept away by the holder of
/// the prefix, who took it for a dead writer's.
const SWEPT_ATTEMPTS: u32 = 5;

/// How often a write that is ready asks for leave again because that has run out meanwhile.
const LEAVE_ATTEMPTS: u32 = 100;

pub(super) fn put(
    root: &Root,
    key: &str,
    payload: &Payload,
    condition: &PutCondition,
) -> Result<Published> {
    let target = Target::of(root, key)?;
    for _ in 0..SWEPT_ATTEMPTS {
        let Some(temporary) = prepare(root, &target, payload)? else {
            continue;
        };
        match commit(root, &target, temporary, condition, None)? {
            Committed::Published(published) => return Ok(published),
            Committed::ConditionBroken => return found(root, key, payload, condition),
            Committed::Swept | Committed::NoLeave(_) => {}
        }
    }
    Err(swept_away(&target))
}

/// As [`put`], but with leave, which is asked for once everything but the rename is done, and
/// before another attempt at what was swept away.
pub(super) async fn put_permitted(
    root: &Arc<Root>,
    key: &str,
    payload: Payload,
    condition: PutCondition,
    permit: Arc<dyn Permit>,
) -> Result<Published> {
    let target = Arc::new(Target::of(root, key)?);
    for attempt in 0..SWEPT_ATTEMPTS {
        // Who sweeps holds the prefix: if that is somebody else, nothing is written anew.
        let mut anew = attempt > 0;
        if anew {
            ask(&target, &*permit, anew).await?;
        }
        let (shared, aim, bytes) = (Arc::clone(root), Arc::clone(&target), payload.clone());
        let Some(mut temporary) = blocking(move || prepare(&shared, &aim, &bytes)).await? else {
            continue;
        };
        for _ in 0..LEAVE_ATTEMPTS {
            ask(&target, &*permit, anew).await?;
            anew = false;
            let (shared, aim) = (Arc::clone(root), Arc::clone(&target));
            let (wanted, leave) = (condition.clone(), Arc::clone(&permit));
            let committed =
                blocking(move || commit(&shared, &aim, temporary, &wanted, Some(&*leave)));
            temporary = match committed.await? {
                Committed::Published(published) => return Ok(published),
                Committed::ConditionBroken => {
                    let (root, key) = (Arc::clone(root), key.to_owned());
                    return blocking(move || found(&root, &key, &payload, &condition)).await;
                }
                Committed::Swept => break,
                Committed::NoLeave(temporary) => temporary,
            };
        }
    }
    Err(swept_away(&target))
}

async fn ask(target: &Target, permit: &dyn Permit, anew: bool) -> Result<()> {
    let asked = permit.ask(anew).await;
    asked.map_err(|withheld| Error::withheld(&target.uri, withheld))
}

fn swept_away(target: &Target) -> Error {
    let error = io::Error::other("its temporary file or folder keeps being removed");
    target.error("write it", error)
}

/// What became of a file that was ready.
enum Committed {
    Published(Published),
    /// Something else is in its place.
    ConditionBroken,
    /// The temporary file, or its folder, is gone.
    Swept,
    /// The leave to publish has run out.
    NoLeave(Temporary),
}

/// Writes everything beside the target; none if the folder was removed meanwhile.
fn prepare(root: &Root, target: &Target, payload: &Payload) -> Result<Option<Temporary>> {
    Counters::add(&root.counters.put, 1);
    target.check_inside(root)?;
    match Temporary::write(root, target, payload) {
        Ok(temporary) => Ok(Some(temporary)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(target.error("write it", error)),
    }
}

/// Renames what is ready, if the condition holds, and there still is leave to.
fn commit(
    root: &Root,
    target: &Target,
    temporary: Temporary,
    condition: &PutCondition,
    permit: Option<&dyn Permit>,
) -> Result<Committed> {
    let committed = match condition {
        PutCondition::Create => create(target, temporary, permit),
        PutCondition::Replace(expected) => replace(target, temporary, expected, permit),
    };
    match committed {
        Ok(Committed::Published(published)) => {
            Counters::add(&root.counters.bytes_written, published.size);
            let durable = root.folders.sync(&target.folder);
            durable.map_err(|error| target.error("make it durable", error))?;
            Ok(Committed::Published(published))
        }
        Ok(other) => Ok(other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Committed::Swept),
        Err(error) => Err(target.error("write it", error)),
    }
}

pub(super) fn delete(root: &Root, key: &str, expected: Option<&ETag>) -> Result<()> {
    let target = Target::of(root, key)?;
    Counters::add(&root.counters.delete, 1);
    target.check_inside(root)?;
    let locked = match lock(&target.folder) {
        Ok(locked) => locked,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(target.error("lock its folder", error)),
    };
    let removed = remove(&target.path, expected);
    drop(locked);
    match removed {
        Ok(true) => {
            let durable = root.folders.sync(&target.folder);
            durable.map_err(|error| target.error("make its removal durable", error))?;
            prune(root, &target.folder);
            Ok(())
        }
        Ok(false) => Err(Error::Changed { uri: target.uri }),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(target.error("delete it", error)),
    }
}

/// A folder is there for what is in it: one that is left empty goes, too.
fn prune(root: &Root, folder: &Path) {
    let below = |folder: &&Path| folder.starts_with(&root.path) && **folder != *root.path;
    for folder in folder.ancestors().take_while(below) {
        if fs::remove_dir(folder).is_err() {
            return;
        }
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

    /// Refuses to write through a link that leads out of the root: what is there is nobody's to
    /// write, and no lock guards it.
    fn check_inside(&self, root: &Root) -> Result<()> {
        let mut upper = self.folder.as_path();
        loop {
            let is_below = upper.starts_with(&root.path);
            let real = match upper.canonicalize() {
                Ok(real) => real,
                Err(error) if is_missing(&error) && !upper.is_symlink() => {
                    // Not made yet; what it will be in counts.
                    let Some(parent) = upper.parent() else {
                        return Ok(());
                    };
                    upper = parent;
                    continue;
                }
                Err(error) if is_missing(&error) => {
                    return Err(self.leads_away(upper, "nowhere".to_owned()));
                }
                Err(error) => return Err(self.error("look at its folder", error)),
            };
            let stays = match is_below {
                true => real.starts_with(&root.path),
                false => real == upper,
            };
            return match stays {
                true => Ok(()),
                false => Err(self.leads_away(upper, format!("to {}", real.display()))),
            };
        }
    }

    fn leads_away(&self, link: &Path, whither: String) -> Error {
        let link = link.display();
        Error::invalid(
            &self.uri,
            format!(
                "{link} is, or lies behind, a link that leads {whither}, out of the prefix, and a \
                 write follows no such link: name that folder itself, or remove the link"
            ),
        )
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

fn has_leave(permit: Option<&dyn Permit>) -> bool {
    permit.is_none_or(Permit::holds)
}

fn create(
    target: &Target,
    mut temporary: Temporary,
    permit: Option<&dyn Permit>,
) -> io::Result<Committed> {
    let metadata = temporary.file.metadata()?;
    if !has_leave(permit) {
        return Ok(Committed::NoLeave(temporary));
    }
    if !move_without_replacing(&temporary.path, &target.path)? {
        return Ok(Committed::ConditionBroken);
    }
    temporary.published = true;
    Ok(published(&metadata))
}

fn replace(
    target: &Target,
    mut temporary: Temporary,
    expected: &ETag,
    permit: Option<&dyn Permit>,
) -> io::Result<Committed> {
    let locked = lock(&target.folder)?;
    let current = match fs::metadata(&target.path) {
        Ok(current) => current,
        Err(error) if is_missing(&error) => return Ok(Committed::ConditionBroken),
        Err(error) => return Err(error),
    };
    if version::etag(&current) != *expected {
        return Ok(Committed::ConditionBroken);
    }
    let metadata = version::stamp_later(&temporary.file, &current)?;
    if !has_leave(permit) {
        return Ok(Committed::NoLeave(temporary));
    }
    fs::rename(&temporary.path, &target.path)?;
    temporary.published = true;
    drop(locked);
    Ok(published(&metadata))
}

fn published(metadata: &Metadata) -> Committed {
    Committed::Published(Published {
        etag: version::etag(metadata),
        size: metadata.len(),
        already_there: false,
    })
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
    let (meta, bytes) = match read::whole(root, key, meta.size) {
        Ok(read) => read,
        Err(Error::NotFound { .. } | Error::TooLarge { .. }) => return Err(broken()),
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
pub(super) fn lock(folder: &Path) -> io::Result<File> {
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

/// Bytes of a name that a temporary file's begins with.
pub(super) const LONGEST_NAME: usize = 200;

/// `.<name>.<random>.sidecar-tmp`, the name cut where it would not fit.
fn temporary_name(name: &str) -> String {
    let mut end = name.len().min(LONGEST_NAME);
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
