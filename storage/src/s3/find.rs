//! Finding out which of many keys exist: by listing where they are neighbours.

use super::S3Store;
use super::list::Request;
use crate::error::Result;
use crate::store::{ObjectMeta, look_at_each};

/// A LIST request costs about as much as this many look-ups. A page that answers for fewer
/// keys isn't worth it.
const LOOK_UPS_A_PAGE: usize = 12;

impl S3Store {
    /// Those of `keys`, which ascend, that exist. Each page begins at the first key that isn't
    /// answered for yet, so that what lies between keys that are far apart is never listed.
    pub(super) async fn find_neighbours(&self, keys: &[String]) -> Result<Vec<ObjectMeta>> {
        let mut found = Vec::new();
        let mut left = keys;
        while let Some(next) = left.first() {
            if !self.lists_in_order() || left.len() < LOOK_UPS_A_PAGE {
                break;
            }
            let after = before(next);
            let request = Request {
                prefix: "",
                by_folder: false,
                after: after.as_deref(),
                token: None,
            };
            let page = self.list_page(request).await?;
            let answered = match (&page.next, page.objects.last()) {
                // Up to the last key of the page; that of a page that is cut is no end.
                (Some(_), Some(last)) => left.partition_point(|key| *key <= last.key),
                (Some(_), None) => 0,
                (None, _) => left.len(),
            };
            found.extend(existing(&left[..answered], page.objects));
            left = &left[answered..];
            if answered < LOOK_UPS_A_PAGE {
                break;
            }
        }
        found.extend(look_at_each(self, left).await?);
        Ok(found)
    }
}

/// A text after which the listing begins with `key`, for all that keys of one store are like:
/// the key without its last character.
fn before(key: &str) -> Option<String> {
    let mut shorter = key.to_owned();
    shorter.pop();
    (!shorter.is_empty()).then_some(shorter)
}

/// The objects of a page whose keys are among `keys`; both ascend.
fn existing(keys: &[String], objects: Vec<ObjectMeta>) -> impl Iterator<Item = ObjectMeta> {
    objects
        .into_iter()
        .filter(|object| keys.binary_search(&object.key).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_begins_with_the_key_itself() {
        for key in ["a/b.parquet", "a/é", "ab"] {
            let after = before(key).expect(key);
            assert!(after.as_str() < key && key.starts_with(&after), "{after}");
        }
        assert_eq!(before("a"), None);
    }
}
