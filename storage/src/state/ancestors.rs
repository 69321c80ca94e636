//! The prefixes above a prefix.

use std::sync::Arc;

use super::layout;
use crate::store::Store;

/// All prefixes that contain `prefix`, from the nearest up to the bucket or the root of the
/// file system: of `s3://bucket/a/b/`, `s3://bucket/a/` and `s3://bucket/`. `prefix` itself
/// isn't one of them.
pub fn ancestor_prefixes(prefix: &str) -> Vec<String> {
    let (root, path) = split_root(prefix);
    let path = path.trim_end_matches('/');
    path.char_indices()
        .rev()
        .filter(|(_, character)| *character == '/')
        .map(|(position, _)| format!("{root}{}", &path[..=position]))
        .chain((!path.is_empty()).then(|| root.to_owned()))
        .collect()
}

/// URIs of the writer locks of all prefixes that contain `prefix`.
pub fn ancestor_lock_uris(prefix: &str) -> Vec<String> {
    ancestor_prefixes(prefix)
        .into_iter()
        .map(|ancestor| format!("{ancestor}{}", layout::WRITER))
        .collect()
}

/// Opens a store for each prefix that contains `prefix`.
pub fn open_ancestors<E>(
    prefix: &str,
    open: impl Fn(&str) -> Result<Arc<dyn Store>, E>,
) -> Result<Vec<Arc<dyn Store>>, E> {
    ancestor_prefixes(prefix)
        .iter()
        .map(|ancestor| open(ancestor))
        .collect()
}

/// Splits a URI, or an absolute path, into its root that ends in `/` and the rest.
fn split_root(prefix: &str) -> (&str, &str) {
    let authority = prefix
        .find("://")
        .map_or(0, |position| position + "://".len());
    match prefix[authority..].find('/') {
        Some(slash) => prefix.split_at(authority + slash + 1),
        None => (prefix, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_up_to_the_root_is_an_ancestor() {
        for (prefix, expected) in [
            ("s3://bucket/", vec![]),
            ("s3://bucket", vec![]),
            ("s3://bucket/a/", vec!["s3://bucket/"]),
            (
                "s3://bucket/a b/c%20/d/",
                vec!["s3://bucket/a b/c%20/", "s3://bucket/a b/", "s3://bucket/"],
            ),
            (
                "s3://bucket/a//b/",
                vec!["s3://bucket/a//", "s3://bucket/a/", "s3://bucket/"],
            ),
            ("file:///data/out/", vec!["file:///data/", "file:///"]),
            ("/data/out/", vec!["/data/", "/"]),
            ("/données/out/", vec!["/données/", "/"]),
            ("/", vec![]),
        ] {
            assert_eq!(ancestor_prefixes(prefix), expected, "{prefix}");
        }
    }

    #[test]
    fn locks_are_below_the_ancestors() {
        assert_eq!(
            ancestor_lock_uris("s3://bucket/a/b/"),
            [
                "s3://bucket/a/_sidecar/writer.json",
                "s3://bucket/_sidecar/writer.json"
            ]
        );
    }
}
