//! Where a store or an object is: parsing of URIs.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::key;

/// A place in a store, parsed from `s3://bucket/key`, `file:///absolute/path` or a plain path.
///
/// `s3://` keys are taken as they are (no percent-decoding: a `%` is a `%`), and so are plain
/// paths. `file://` URIs are percent-decoded, as everywhere else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// In a bucket.
    S3 {
        /// Bucket name.
        bucket: String,
        /// Key or, of a prefix, empty or ending in `/`.
        key: String,
    },
    /// On disk.
    Local {
        /// Absolute path without `.` and `..`.
        path: PathBuf,
    },
}

impl Location {
    /// Parses the URI of a prefix or of an object.
    ///
    /// # Errors
    /// `Error::Invalid` that says what to write instead.
    pub fn parse(uri: &str) -> Result<Self> {
        if uri.is_empty() {
            return Err(Error::invalid(
                "``",
                "a URI or a path is expected, but it is empty",
            ));
        }
        if uri.contains('\0') {
            return Err(Error::invalid(
                uri.escape_debug().to_string(),
                "it holds a zero byte",
            ));
        }
        if let Some(rest) = uri.strip_prefix("s3://") {
            return parse_s3(uri, rest);
        }
        if let Some(rest) = uri.strip_prefix("file://") {
            return parse_file(uri, rest);
        }
        if let Some((scheme, rest)) = uri.split_once("://") {
            let is_scheme = scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            if is_scheme && !scheme.is_empty() {
                let reason = match scheme.to_ascii_lowercase().as_str() {
                    "s3a" | "s3n" | "s3" => format!("write it as `s3://{rest}`"),
                    "file" => format!("write it as `file://{rest}`"),
                    "gs" | "gcs" | "az" | "abfs" | "abfss" | "wasb" | "hdfs" => format!(
                        "`{scheme}://` is not supported; use `s3://` (with `endpoint` for another \
                         S3-compatible server) or a folder"
                    ),
                    "http" | "https" => "use `s3://bucket/prefix/` and give the server as \
                                         `endpoint`"
                        .to_string(),
                    _ => format!("`{scheme}://` is not supported; use `s3://` or a folder"),
                };
                return Err(Error::invalid(uri, reason));
            }
        }
        for scheme in ["s3", "s3a", "s3n", "file"] {
            if let Some(rest) = uri
                .strip_prefix(scheme)
                .and_then(|rest| rest.strip_prefix(":/"))
            {
                let scheme = if scheme == "file" {
                    "file:///"
                } else {
                    "s3://"
                };
                let reason = format!("a slash is missing: write it as `{scheme}{rest}`");
                return Err(Error::invalid(uri, reason));
            }
        }
        let path = resolve(uri, Path::new(uri))?;
        Ok(Self::Local { path })
    }

    /// The location as the URI of a prefix: it ends in `/`.
    pub fn to_prefix_uri(&self) -> String {
        match self {
            Self::S3 { bucket, key } if key.is_empty() || key.ends_with('/') => {
                format!("s3://{bucket}/{key}")
            }
            Self::S3 { bucket, key } => format!("s3://{bucket}/{key}/"),
            Self::Local { path } => {
                let text = path.to_string_lossy();
                if text.ends_with('/') {
                    text.into_owned()
                } else {
                    format!("{text}/")
                }
            }
        }
    }

    /// Splits the location of one object into its prefix and its name.
    ///
    /// # Errors
    /// `Error::Invalid` if `uri` names a prefix or a bucket rather than an object.
    pub fn split_object(&self, uri: &str) -> Result<(Self, String)> {
        let refuse = || Error::invalid(uri, "the URI of one object is expected, not of a folder");
        if uri.ends_with('/') {
            return Err(refuse());
        }
        match self {
            Self::S3 { bucket, key } => {
                let (prefix, name) = match key.rfind('/') {
                    Some(slash) => key.split_at(slash + 1),
                    None => ("", key.as_str()),
                };
                if name.is_empty() {
                    return Err(refuse());
                }
                let parent = Self::S3 {
                    bucket: bucket.clone(),
                    key: prefix.to_string(),
                };
                Ok((parent, name.to_string()))
            }
            Self::Local { path } => {
                let name = path
                    .file_name()
                    .and_then(OsStr::to_str)
                    .ok_or_else(refuse)?;
                let parent = path.parent().ok_or_else(refuse)?;
                let parent = Self::Local {
                    path: parent.to_path_buf(),
                };
                Ok((parent, name.to_string()))
            }
        }
    }
}

fn parse_s3(uri: &str, rest: &str) -> Result<Location> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Error::invalid(
            uri,
            "the bucket is missing; write `s3://bucket/prefix/`",
        ));
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if !bucket.bytes().all(known) {
        return Err(Error::invalid(
            uri,
            format!("`{bucket}` is no bucket name: letters, digits, `-` and `.` are allowed"),
        ));
    }
    key::check_folder("", &format!("{}/", key.trim_end_matches('/')))
        .or_else(|error| if key.is_empty() { Ok(()) } else { Err(error) })
        .map_err(|error| match error {
            Error::Invalid { reason, .. } => Error::invalid(uri, reason),
            other => other,
        })?;
    if key.ends_with("//") {
        return Err(Error::invalid(uri, "a key has no empty parts: no `//`"));
    }
    Ok(Location::S3 {
        bucket: bucket.to_string(),
        key: key.to_string(),
    })
}

fn parse_file(uri: &str, rest: &str) -> Result<Location> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(Error::invalid(
            uri,
            "a `file://` URI is absolute: write three slashes, or a plain path",
        ));
    }
    let decoded = percent_decode(path)
        .filter(|decoded| !decoded.contains('\0'))
        .ok_or_else(|| Error::invalid(uri, "a `%` in a `file://` URI is written `%25`"))?;
    let path = resolve(uri, Path::new(&decoded))?;
    Ok(Location::Local { path })
}

/// Absolute and without `.`; a `..` is resolved on disk, since it may follow a link.
fn resolve(uri: &str, path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)
        .map_err(|source| Error::local(uri, "find the current folder", source))?;
    let parts: Vec<Component<'_>> = absolute.components().collect();
    let Some(last_parent) = parts.iter().rposition(|part| *part == Component::ParentDir) else {
        return Ok(parts.iter().collect());
    };
    let upper: PathBuf = parts[..=last_parent].iter().collect();
    let mut resolved = upper.canonicalize().map_err(|_| {
        Error::invalid(
            uri,
            format!(
                "`{}` does not exist, so `..` leads nowhere",
                upper.display()
            ),
        )
    })?;
    resolved.extend(&parts[last_parent + 1..]);
    Ok(resolved)
}

/// Decodes `%41`; none if a `%` is not followed by two hex digits or the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3(bucket: &str, key: &str) -> Location {
        Location::S3 {
            bucket: bucket.to_string(),
            key: key.to_string(),
        }
    }

    #[test]
    fn prefixes_end_in_a_slash() {
        for (uri, prefix) in [
            ("s3://b", "s3://b/"),
            ("s3://b/", "s3://b/"),
            ("s3://b/p", "s3://b/p/"),
            ("s3://b/p/q/", "s3://b/p/q/"),
            ("s3://b/a b+c%20=#é", "s3://b/a b+c%20=#é/"),
            ("/tmp/x", "/tmp/x/"),
            ("/tmp/./x//y/", "/tmp/x/y/"),
            ("file:///tmp/a%20b", "/tmp/a b/"),
            ("/tmp/a%20b", "/tmp/a%20b/"),
            ("/", "/"),
        ] {
            let location = Location::parse(uri).expect(uri);
            assert_eq!(location.to_prefix_uri(), prefix, "{uri}");
            let again = Location::parse(prefix).expect(prefix);
            assert_eq!(again.to_prefix_uri(), prefix, "{uri} twice");
        }
    }

    #[test]
    fn relative_paths_become_absolute() {
        let here = std::env::current_dir().expect("a current folder");
        let location = Location::parse("some/data").expect("a path");
        assert_eq!(
            location,
            Location::Local {
                path: here.join("some/data")
            }
        );
    }

    #[test]
    fn parents_are_resolved_on_disk() {
        let temporary = tempfile::tempdir().expect("a folder");
        let root = temporary.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("a/b")).expect("a folder");
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).expect("a link");
        let through_link = format!("{}/link/../c", root.display());
        let location = Location::parse(&through_link).expect("a path");
        assert_eq!(
            location,
            Location::Local {
                path: root.join("a/c")
            }
        );
        let nowhere = format!("{}/none/../c", root.display());
        assert!(Location::parse(&nowhere).is_err());
    }

    #[test]
    fn mistakes_are_explained() {
        for (uri, hint) in [
            ("", "empty"),
            ("s3a://b/p/", "s3://b/p/"),
            ("S3://b/p/", "s3://b/p/"),
            ("s3:/b/p/", "s3://b/p/"),
            ("file:/b/p/", "file:///b/p/"),
            ("gs://b/p/", "not supported"),
            ("https://host/b", "endpoint"),
            ("s3://", "bucket is missing"),
            ("s3:///p/", "bucket is missing"),
            ("s3://b c/p/", "no bucket name"),
            ("s3://b/p/../q/", "`..`"),
            ("s3://b/p//q/", "`//`"),
            ("s3://b/p//", "`//`"),
            ("file://data/x", "three slashes"),
            ("file:///a%zz", "%25"),
        ] {
            let error = Location::parse(uri).expect_err(uri).to_string();
            assert!(error.contains(hint), "{uri}: {error}");
        }
    }

    #[test]
    fn objects_have_a_parent() {
        for (uri, prefix, name) in [
            ("s3://b/a.parquet", s3("b", ""), "a.parquet"),
            ("s3://b/p/q/a.parquet", s3("b", "p/q/"), "a.parquet"),
        ] {
            let location = Location::parse(uri).expect(uri);
            let (parent, key) = location.split_object(uri).expect(uri);
            assert_eq!((parent, key.as_str()), (prefix, name));
        }
        for uri in ["s3://b", "s3://b/", "s3://b/p/", "/tmp/x/", "/"] {
            let location = Location::parse(uri).expect(uri);
            assert!(location.split_object(uri).is_err(), "{uri}");
        }
    }
}
