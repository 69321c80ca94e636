//! Source inference: which source a key belongs to, by the markers that it contains.

use memchr::memmem::Finder;

use crate::keys::KeyColumn;
use crate::lookup::key_table::{Group, NO_GROUP};

/// The sources of a dataset, in the order of the manifest.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    names: Vec<String>,
    markers: Vec<(Finder<'static>, Group)>,
    default: Option<Group>,
}

impl Sources {
    /// `markers` are pairs of a text that a key contains and the source it then belongs to;
    /// the first that matches wins. Without a default, other keys belong to no source.
    pub fn new<'a>(
        markers: impl IntoIterator<Item = (&'a str, &'a str)>,
        default: Option<&str>,
    ) -> Self {
        let mut sources = Self::default();
        for (contains, source) in markers {
            let group = sources.intern(source);
            sources
                .markers
                .push((Finder::new(contains.as_bytes()).into_owned(), group));
        }
        sources.default = default.map(|source| sources.intern(source));
        sources
    }

    fn intern(&mut self, name: &str) -> Group {
        self.number_of(name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            (self.names.len() - 1) as Group
        })
    }

    /// Whether the manifest declares no sources.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of a source.
    pub fn number_of(&self, name: &str) -> Option<Group> {
        self.names
            .iter()
            .position(|known| known == name)
            .map(|position| position as Group)
    }

    /// Source of one key.
    pub fn infer(&self, key: &[u8]) -> Option<Group> {
        let found = self
            .markers
            .iter()
            .find(|(marker, _)| marker.find(key).is_some());
        found.map(|(_, group)| *group).or(self.default)
    }

    /// Source of each row; [`NO_GROUP`] for null keys and keys of no source.
    pub fn infer_all(&self, keys: &KeyColumn) -> Vec<Group> {
        (0..keys.len())
            .map(|row| {
                keys.get(row)
                    .and_then(|key| self.infer(key))
                    .unwrap_or(NO_GROUP)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_marker_wins_and_the_default_takes_the_rest() {
        let markers = [("raw/b", "b"), ("raw", "any"), ("raw/c", "c")];
        let table: [(&str, Option<&str>, Option<&str>); 4] = [
            ("x/raw/b/1", None, Some("b")),
            ("x/raw/c/1", None, Some("any")),
            ("x/other", None, None),
            ("x/other", Some("rest"), Some("rest")),
        ];
        for (key, default, expected) in table {
            let sources = Sources::new(markers, default);
            let found = sources
                .infer(key.as_bytes())
                .map(|group| sources.names()[usize::from(group)].as_str());
            assert_eq!(found, expected, "{key} with default {default:?}");
        }
    }
}
