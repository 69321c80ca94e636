//! Where a store or an object is: parsing of URIs.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crds::prefix;

use crate::error::{Error, Result};
use crate::key;

/// A place in a store, parsed from `s3://bucket/key`, `file:///absolute/path` or a plain path.
///
/// `s3://` keys are taken as they are (no percent-decoding: a `%` is a `%`), and so are plain
/// paths. `file://` URIs are percent-decoded, as everywhere else. A local path is the folder
/// itself, whatever text led to it: two locations of one folder are equal.
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
        /// Absolute path without `.`, `..` and links, as far as it exists.
        path: PathBuf,
    },
}

impl Location {
    /// Parses the URI of a prefix.
    ///
    /// # Errors
    /// `Error::Invalid` that says what to write instead.
    pub fn parse(uri: &str) -> Result<Self> {
        match Text::of(uri)? {
            Text::S3(rest) => parse_s3(uri, rest),
            Text::Path(path) => Ok(Self::Local {
                path: resolve(uri, Path::new(&path))?,
            }),
        }
    }

    /// Parses the URI of one object: where it is, and its name there. A link keeps its own name.
    ///
    /// # Errors
    /// `Error::Invalid` if `uri` is malformed, or names a prefix or a bucket rather than an
    /// object.
    pub fn parse_object(uri: &str) -> Result<(Self, String)> {
        let refuse = || Error::invalid(uri, "the URI of one object is expected, not of a folder");
        if uri.ends_with('/') {
            return Err(refuse());
        }
        match Text::of(uri)? {
            Text::S3(rest) => {
                let Self::S3 { bucket, key } = parse_s3(uri, rest)? else {
                    return Err(refuse());
                };
                let (prefix, name) = match key.rfind('/') {
                    Some(slash) => key.split_at(slash + 1),
                    None => ("", key.as_str()),
                };
                if name.is_empty() {
                    return Err(refuse());
                }
                let key = prefix.to_string();
                Ok((Self::S3 { bucket, key }, name.to_string()))
            }
            Text::Path(path) => {
                let path = absolute(uri, Path::new(&path))?;
                let name = path.file_name().and_then(OsStr::to_str);
                let (Some(name), Some(parent)) = (name, path.parent()) else {
                    return Err(refuse());
                };
                let parent = Self::Local {
                    path: resolve(uri, parent)?,
                };
                Ok((parent, name.to_string()))
            }
        }
    }

    /// Whether `other` is this folder, or lies in it.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local { path }, Self::Local { path: other }) => {
                other.starts_with(path) || is_above(path, other)
            }
            (Self::S3 { .. }, Self::S3 { .. }) => {
                other.to_prefix_uri().starts_with(&self.to_prefix_uri())
            }
            _ => false,
        }
    }

    /// Whether both are the same folder, or one lies in the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
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
}

/// A location as it is written.
enum Text<'a> {
    /// What follows `s3://`.
    S3(&'a str),
    /// A path, decoded.
    Path(String),
}

/// Schemes of other tools, and misspelt ones of ours: nobody means a folder of that name.
const SCHEMES: [&str; 15] = [
    "s3", "s3a", "s3n", "file", "gs", "gcs", "az", "abfs", "abfss", "wasb", "wasbs", "hdfs",
    "http", "https", "oss",
];

impl<'a> Text<'a> {
    fn of(uri: &'a str) -> Result<Self> {
        if uri.is_empty() {
            return Err(Error::invalid(
                "``",
                "a URI or a path is expected, but it is empty; was a variable not set?",
            ));
        }
        if uri.contains('\0') {
            return Err(Error::invalid(
                uri.escape_debug().to_string(),
                "it holds a zero byte",
            ));
        }
        if let Some(rest) = uri.strip_prefix("s3://") {
            return Ok(Self::S3(rest));
        }
        if let Some(rest) = uri.strip_prefix("file://") {
            return match prefix::local_path(rest) {
                Some(path) => Ok(Self::Path(path)),
                None if rest.starts_with('/') || rest.starts_with("localhost/") => Err(
                    Error::invalid(uri, "a `%` in a `file://` URI is written `%25`"),
                ),
                None => Err(Error::invalid(
                    uri,
                    "a `file://` URI is absolute: write three slashes, or a plain path",
                )),
            };
        }
        if let Some(scheme) = prefix::scheme(uri) {
            let rest = &uri[scheme.len() + "://".len()..];
            return Err(Error::invalid(uri, advice(scheme, rest)));
        }
        if let Some((scheme, rest)) = uri.split_once(":/")
            && SCHEMES.contains(&scheme.to_ascii_lowercase().as_str())
        {
            let reason = match scheme.to_ascii_lowercase().as_str() {
                "s3" | "s3a" | "s3n" => {
                    format!("a slash is missing: write it as `s3://{rest}`")
                }
                "file" => format!("a slash is missing: write it as `file:///{rest}`"),
                _ => advice(scheme, rest),
            };
            return Err(Error::invalid(uri, reason));
        }
        Ok(Self::Path(uri.to_owned()))
    }
}

/// What to write instead of a location with this scheme.
fn advice(scheme: &str, rest: &str) -> String {
    match scheme.to_ascii_lowercase().as_str() {
        "s3a" | "s3n" | "s3" => format!("write it as `s3://{rest}`"),
        "file" => format!("write it as `file://{rest}`"),
        "http" | "https" => {
            "use `s3://bucket/prefix/` and give the server as `endpoint`".to_string()
        }
        known if SCHEMES.contains(&known) => format!(
            "`{scheme}://` is not supported; use `s3://` (with `endpoint` for another \
             S3-compatible server) or a folder"
        ),
        _ => format!("`{scheme}://` is not supported; use `s3://` or a folder"),
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

fn absolute(uri: &str, path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)
        .map_err(|source| Error::local(uri, "find the current folder", source))?;
    Ok(absolute.components().collect())
}

/// The folder that a path leads to: absolute, and without links as far as it exists. What does
/// not exist yet has no links.
fn resolve(uri: &str, path: &Path) -> Result<PathBuf> {
    let absolute = absolute(uri, path)?;
    let mut missing: Vec<Component<'_>> = Vec::new();
    let mut upper = absolute.as_path();
    let mut resolved = loop {
        match upper.canonicalize() {
            Ok(resolved) => break resolved,
            Err(error) if leads_nowhere(upper) => {
                let link = upper.display();
                let reason = match error.kind() {
                    io::ErrorKind::NotFound => format!("`{link}` is a link that leads nowhere"),
                    _ => format!("`{link}` is a link that can't be followed: {error}"),
                };
                return Err(Error::invalid(uri, reason));
            }
            Err(_) => {}
        }
        let mut parts = upper.components();
        match parts.next_back() {
            Some(Component::RootDir) | None => break absolute.clone(),
            Some(part) => missing.push(part),
        }
        upper = parts.as_path();
    };
    if missing.contains(&Component::ParentDir) {
        return Err(Error::invalid(
            uri,
            format!(
                "a part of it does not exist in `{}`, so `..` leads nowhere",
                resolved.display()
            ),
        ));
    }
    resolved.extend(missing.into_iter().rev());
    if resolved.to_str().is_none() {
        return Err(Error::invalid(uri, "the path is not UTF-8"));
    }
    Ok(resolved)
}

/// Whether there is a link at this path itself, though nothing at its end.
fn leads_nowhere(path: &Path) -> bool {
    // A link below a link that leads nowhere is not there itself.
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// Whether the folder `upper` is one of those that `path` goes through, under whatever name: by
/// another mount, or in other case where case does not count.
fn is_above(upper: &Path, path: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(upper)
        .is_some_and(|upper| path.ancestors().any(|above| identity(above) == Some(upper)))
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
            ("GS://b/p/", "not supported"),
            ("gs:/b/p/", "not supported"),
            ("S3:/b/p/", "s3://b/p/"),
            ("FILE:///b/p/", "file:///b/p/"),
            ("foo+bar://b/p/", "not supported"),
            ("file://host/x", "three slashes"),
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
            let (parent, key) = Location::parse_object(uri).expect(uri);
            assert_eq!((parent, key.as_str()), (prefix, name));
        }
        for uri in ["s3://b", "s3://b/", "s3://b/p/", "/tmp/x/", "/", "/tmp/.."] {
            assert!(Location::parse_object(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_folder_has_one_location_whatever_leads_to_it() {
        let temporary = tempfile::tempdir().expect("a folder");
        let root = temporary.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("a b/c")).expect("a folder");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, root.join(name)).expect("a link");
        };
        link("a b", "link");
        link("nowhere", "dangling");
        link("loop", "loop");
        link("../blob", "link/c/x.parquet");
        std::fs::write(root.join("a b/blob"), "x").expect("a file");
        let root = root.display();
        let parse = |name: &str| Location::parse(&format!("{root}/{name}"));
        let folder = parse("a b/c").expect("a path");
        for name in ["link/c", "link/../a b/c/", "a b/c/../c", "./a b//c"] {
            assert_eq!(parse(name).expect(name), folder, "{name}");
        }
        let encoded = Location::parse(&format!("file://{root}/a%20b/c")).expect("a path");
        assert_eq!(encoded, folder);
        let new = parse("link/new/er").expect("a path");
        assert_eq!(new, parse("a b/new/er").expect("a path"));
        for (name, words) in [
            ("dangling", "leads nowhere"),
            ("dangling/x", "leads nowhere"),
            ("loop/x", "can't be followed"),
            ("none/../c", "`..` leads nowhere"),
        ] {
            let error = parse(name).expect_err(name).to_string();
            assert!(error.contains(words), "{name}: {error}");
        }
        // A link to a file is read under its own name, which tells what it is.
        let (parent, name) =
            Location::parse_object(&format!("{root}/link/c/x.parquet")).expect("a path");
        assert_eq!((parent, name.as_str()), (folder.clone(), "x.parquet"));

        let upper = parse("link").expect("a path");
        assert!(upper.contains(&folder) && !folder.contains(&upper) && folder.overlaps(&upper));
        assert!(upper.contains(&new) && !folder.overlaps(&new));
        assert!(!upper.contains(&s3("b", "")) && s3("b", "a").contains(&s3("b", "a/b")));
        assert!(!s3("b", "a").overlaps(&s3("b", "ab")));
    }
}
