//! How prefixes are normalised and compared.
//!
//! A prefix is a folder: `s3://bucket/path/`, `file:///path/`, `/path/` or `path/` (from
//! the current folder). Keys of object storage are opaque, so nothing in an S3 prefix is
//! decoded or collapsed; a path in a file system loses `.`, empty parts and the scheme, with
//! which goes its percent-encoding. What has another scheme, or a malformed one, stays as it is:
//! whoever opens it refuses it.

/// The scheme of S3 prefixes.
const S3: &str = "s3://";

/// The scheme of local prefixes.
const FILE: &str = "file://";

/// A prefix in its one normal form: it ends in `/`, and a local one is a plain path.
///
/// ```
/// use crds::prefix::normalize;
/// assert_eq!(normalize("s3://bucket/photos"), "s3://bucket/photos/");
/// assert_eq!(normalize("file:///data//photos"), "/data/photos/");
/// assert_eq!(normalize("file:///a%20b"), "/a b/");
/// assert_eq!(normalize("./demo-data/main"), "demo-data/main/");
/// assert_eq!(normalize("gs://bucket/photos"), "gs://bucket/photos/");
/// ```
pub fn normalize(prefix: &str) -> String {
    let mut normal = normalize_location(prefix);
    if !normal.ends_with('/') {
        normal.push('/');
    }
    normal
}

/// A place that may be a file or a folder, in its normal form: as [`normalize`], but
/// without a `/` at the end that was not there.
///
/// ```
/// use crds::prefix::normalize_location;
/// assert_eq!(normalize_location("./index/a.parquet"), "index/a.parquet");
/// assert_eq!(normalize_location("index/"), "index/");
/// ```
pub fn normalize_location(location: &str) -> String {
    let decoded;
    let path = match location.strip_prefix(FILE) {
        Some(rest) => match local_path(rest) {
            Some(path) => {
                decoded = path;
                &decoded
            }
            None => return location.to_owned(),
        },
        None if scheme(location).is_some() => return location.to_owned(),
        None => location,
    };
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    let end = match parts.last() {
        Some(_) if path.ends_with('/') || path.ends_with("/.") => "/",
        Some(_) => "",
        None if root.is_empty() => "./",
        None => "",
    };
    format!("{root}{}{end}", parts.join("/"))
}

/// What the names of new folders beside this one begin with; `None` where there is no place for
/// any: beside a whole bucket there are only other buckets, beside the root of a file system
/// nothing, and `.` and `..` don't tell what they are called.
///
/// ```
/// use crds::prefix::sibling_stem;
/// assert_eq!(sibling_stem("s3://bucket/photos/").as_deref(), Some("s3://bucket/photos_run_"));
/// assert_eq!(sibling_stem("s3://bucket"), None);
/// assert_eq!(sibling_stem("."), None);
/// ```
pub fn sibling_stem(prefix: &str) -> Option<String> {
    let normal = normalize(prefix);
    let folder = normal.trim_end_matches('/');
    let name = match split_s3(folder) {
        Some((_, key)) => key,
        None => folder,
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    (!["", ".", ".."].contains(&last)).then(|| format!("{folder}_run_"))
}

/// Why a spec that names no output has to name one: what [`sibling_stem`] finds no place for.
pub fn no_sibling(prefix: &str) -> String {
    format!(
        "spec.output.prefix is not set, and {prefix} has no place beside it where a new folder \
         could go; set spec.output.prefix"
    )
}

/// What is before the `://` of a location, if that can be a scheme.
pub fn scheme(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once("://")?;
    let mut bytes = scheme.bytes();
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (!scheme.is_empty() && bytes.all(is_known)).then_some(scheme)
}

/// The path of a `file://` URI, of which `rest` is what follows the two slashes; none unless it
/// is absolute and well encoded.
pub fn local_path(rest: &str) -> Option<String> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let decoded = percent_decode(path)?;
    (path.starts_with('/') && !decoded.contains('\0')).then_some(decoded)
}

/// Decodes `%41`; none if a `%` is not followed by two hex digits or the result is not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
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

/// Whether the prefix is in object storage.
pub fn is_s3(prefix: &str) -> bool {
    prefix.starts_with(S3)
}

/// Bucket and key of an S3 location; the key has no `/` at its start.
pub fn split_s3(location: &str) -> Option<(&str, &str)> {
    let rest = location.strip_prefix(S3)?;
    Some(rest.split_once('/').unwrap_or((rest, "")))
}

/// Whether two prefixes are the same folder, or one is inside the other, as far as their texts
/// tell. Symbolic links are not followed, and a relative path is never inside an absolute one:
/// whoever opens them compares the folders.
///
/// ```
/// use crds::prefix::overlaps;
/// assert!(overlaps("s3://bucket/photos", "s3://bucket/photos/sidecar/"));
/// assert!(!overlaps("s3://bucket/photos/", "s3://bucket/photos_sidecar/"));
/// assert!(overlaps("file:///data/", "/data/main"));
/// ```
pub fn overlaps(left: &str, right: &str) -> bool {
    let (left, right) = (normalize(left), normalize(right));
    // The current folder is around every relative path that does not climb out of it.
    let is_around = |outer: &str, inner: &str| {
        inner.starts_with(outer)
            || (outer == "./"
                && !is_s3(inner)
                && !inner.starts_with('/')
                && !inner.starts_with("../"))
    };
    is_around(&left, &right) || is_around(&right, &left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        for (given, expected) in [
            ("s3://bucket", "s3://bucket/"),
            ("s3://bucket/a b+c%2F=#", "s3://bucket/a b+c%2F=#/"),
            ("s3://bucket/a/", "s3://bucket/a/"),
            ("file:///", "/"),
            ("file:///a%20b//c%25", "/a b/c%/"),
            ("file://localhost/a", "/a/"),
            ("file://host/a", "file://host/a/"),
            ("file:///a%zz", "file:///a%zz/"),
            ("S3://bucket/a", "S3://bucket/a/"),
            ("https://host/a//b", "https://host/a//b/"),
            ("a b://c", "a b:/c/"),
            ("/", "/"),
            (".", "./"),
            ("", "./"),
            ("a/./b", "a/b/"),
            ("../a", "../a/"),
        ] {
            assert_eq!(normalize(given), expected, "{given}");
            assert_eq!(normalize(&normalize(given)), expected, "{given} again");
        }
    }

    #[test]
    fn siblings_need_a_place() {
        for (prefix, stem) in [
            ("s3://bucket", None),
            ("s3://bucket/", None),
            ("/", None),
            ("file:///", None),
            (".", None),
            ("", None),
            ("..", None),
            ("../..", None),
            ("s3://bucket/a", Some("s3://bucket/a_run_")),
            ("s3://bucket/a/b/", Some("s3://bucket/a/b_run_")),
            ("/data", Some("/data_run_")),
            ("../main/", Some("../main_run_")),
            ("file:///data/main", Some("/data/main_run_")),
        ] {
            assert_eq!(sibling_stem(prefix).as_deref(), stem, "{prefix}");
        }
    }

    #[test]
    fn overlap_is_about_folders() {
        assert!(overlaps("a", "a/"));
        assert!(overlaps("a/b", "a"));
        assert!(overlaps(".", "a"));
        assert!(!overlaps(".", "../a"));
        assert!(!overlaps("a", "ab"));
        assert!(!overlaps("s3://a/b", "s3://b/b"));
    }

    #[test]
    fn s3_parts() {
        assert_eq!(split_s3("s3://bucket/a/b"), Some(("bucket", "a/b")));
        assert_eq!(split_s3("s3://bucket"), Some(("bucket", "")));
        assert_eq!(split_s3("/bucket"), None);
    }
}
