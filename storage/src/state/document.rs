//! Reading and writing of small JSON files with a `version`.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::{Result, StateError};
use crate::error::Error;
use crate::store::{ETag, ObjectMeta, Payload, Published, PutCondition, Store};

/// The version of every format in this module.
pub const FORMAT_VERSION: u32 = 1;

/// How often a file is read again when somebody else writes it at the same time.
const OVERWRITE_ATTEMPTS: usize = 5;

/// A JSON file that a store keeps.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// What the file is, for messages: "manifest".
    const WHAT: &'static str;
    /// Bytes that are read of it, at most.
    const LIMIT: u64;
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

/// Refuses bytes whose `version` isn't known, before anything else of them is looked at.
pub(crate) fn check_version(file: &str, what: &'static str, json: &[u8]) -> Result<()> {
    let Versioned { version } = from_json(file, what, json)?;
    if version == u64::from(FORMAT_VERSION) {
        return Ok(());
    }
    Err(StateError::Version {
        file: file.to_owned(),
        found: version,
        known: FORMAT_VERSION,
    })
}

/// Parses JSON, without a look at its version.
pub(crate) fn from_json<'a, T: Deserialize<'a>>(
    file: &str,
    what: &'static str,
    json: &'a [u8],
) -> Result<T> {
    serde_json::from_slice(json).map_err(|error| malformed(file, what, error))
}

/// The error of a file that isn't what its name says.
pub(crate) fn malformed(file: &str, what: &'static str, detail: impl ToString) -> StateError {
    StateError::Malformed {
        file: file.to_owned(),
        what,
        detail: detail.to_string(),
    }
}

/// The document as bytes: indented, since people read these files too.
pub(crate) fn encode<T: Document>(key: &str, document: &T) -> Result<Vec<u8>> {
    let mut bytes =
        serde_json::to_vec_pretty(document).map_err(|error| malformed(key, T::WHAT, error))?;
    bytes.push(b'\n');
    check_size(key, T::WHAT, bytes.len() as u64, T::LIMIT)?;
    Ok(bytes)
}

/// Refuses what is larger than what is read of its kind.
pub(crate) fn check_size(file: &str, what: &'static str, size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    Err(too_large(file, what, format!("{size} bytes"), limit))
}

/// The error of a file that has more of something than is read of its kind.
pub(crate) fn too_large(
    file: &str,
    what: &'static str,
    found: impl Display,
    limit: impl Display,
) -> StateError {
    StateError::TooLarge {
        file: file.to_owned(),
        what,
        detail: format!("{found}, and no more than {limit} are read"),
    }
}

/// Parses a document of a known version.
pub(crate) fn decode<T: Document>(file: &str, bytes: &[u8]) -> Result<T> {
    check_version(file, T::WHAT, bytes)?;
    from_json(file, T::WHAT, bytes)
}

/// Reads a document; `None` if there is none.
pub(crate) async fn read<T: Document>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<(ObjectMeta, T)>> {
    let Some((meta, bytes)) = read_bytes(store, key, T::WHAT, T::LIMIT).await? else {
        return Ok(None);
    };
    Ok(Some((meta, decode(&uri(store, key), &bytes)?)))
}

/// Reads a file of `limit` bytes at most; `None` if there is none.
pub(crate) async fn read_bytes(
    store: &dyn Store,
    key: &str,
    what: &'static str,
    limit: u64,
) -> Result<Option<(ObjectMeta, bytes::Bytes)>> {
    match store.read_bounded(key, limit).await {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(Error::TooLarge { uri, found, limit }) => Err(too_large(&uri, what, found, limit)),
        Err(error) => Err(error.into()),
    }
}

/// Writes an object under a condition.
pub(crate) async fn put(
    store: &dyn Store,
    key: &str,
    bytes: Vec<u8>,
    condition: PutCondition,
) -> crate::error::Result<Published> {
    store.put(key, payload(bytes), condition).await
}

/// Writes an object whatever is there. `known` is the version of it that we wrote last, which
/// makes this a single request; there is one writer a file, so that a race is a late retry.
pub(crate) async fn overwrite(
    store: &dyn Store,
    key: &str,
    bytes: Vec<u8>,
    known: Option<ETag>,
) -> Result<Published> {
    let payload = payload(bytes);
    let mut condition = known.map_or(PutCondition::Create, PutCondition::Replace);
    let mut attempt = 1;
    loop {
        match store.put(key, payload.clone(), condition).await {
            Ok(published) => return Ok(published),
            Err(error) if attempt < OVERWRITE_ATTEMPTS && is_conflict(&error) => attempt += 1,
            Err(error) => return Err(error.into()),
        }
        condition = match store.head(key).await {
            Ok(meta) => PutCondition::Replace(meta.etag),
            Err(Error::NotFound { .. }) => PutCondition::Create,
            Err(error) => return Err(error.into()),
        };
    }
}

/// Whether a conditional write failed because somebody else was there first.
pub(crate) fn is_conflict(error: &Error) -> bool {
    matches!(
        error,
        Error::Exists { .. } | Error::Changed { .. } | Error::NotFound { .. }
    )
}

/// Bytes with their hash.
pub(crate) fn payload(bytes: Vec<u8>) -> Payload {
    let sha256 = sha256(&bytes);
    Payload {
        bytes: bytes.into(),
        sha256,
    }
}

/// Lower-case hex SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string can't fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// Where an object is, for messages.
pub(crate) fn uri(store: &dyn Store, key: &str) -> String {
    format!("{}{key}", store.uri())
}
