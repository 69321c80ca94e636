//! The files of a side input, and a lookup over them that tells a broken file from a store that
//! fails.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use storage::state::side_inputs::NamedFiles;
use storage::{Failure, ObjectMeta, Store, Watched};

use crate::error::Error;
use crate::keys::{KeyColumn, KeyKind};
use crate::lookup::{Found, Limits, Lookup, PassError};

/// The objects of a side input.
#[derive(Debug)]
pub struct SideInput {
    store: Arc<Watched>,
    /// One file, or all of a folder, in byte order.
    pub objects: Vec<ObjectMeta>,
    /// Whether the manifest names a folder.
    pub is_folder: bool,
}

impl SideInput {
    /// The files that were found; none is an error of the manifest's.
    pub fn new(found: NamedFiles) -> Self {
        Self {
            store: Arc::new(Watched::new(found.store)),
            objects: found.objects,
            is_folder: found.is_folder,
        }
    }

    /// Where the objects are.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// A lookup over these objects whose passes fail with the store's words where it was the
    /// store that failed: Parquet's and the codecs' readers hand on text alone.
    pub fn watch(&self, lookup: impl Lookup + 'static) -> Box<dyn Lookup> {
        Box::new(WatchedLookup {
            lookup,
            store: self.store.clone(),
        })
    }
}

#[derive(Debug)]
struct WatchedLookup<L> {
    lookup: L,
    store: Arc<Watched>,
}

impl<L: Lookup> Lookup for WatchedLookup<L> {
    fn uri(&self) -> &str {
        self.lookup.uri()
    }

    fn target_key(&self) -> &str {
        self.lookup.target_key()
    }

    fn key_kind(&self) -> Option<KeyKind> {
        self.lookup.key_kind()
    }

    fn decides_match(&self) -> bool {
        self.lookup.decides_match()
    }

    fn columns(&self) -> &[FieldRef] {
        self.lookup.columns()
    }

    fn value_width(&self) -> u64 {
        self.lookup.value_width()
    }

    fn warnings(&self) -> Vec<String> {
        self.lookup.warnings()
    }

    fn pass(&self, shards: &[&KeyColumn], limits: Limits<'_>) -> Result<Found, PassError> {
        // What an earlier pass met, and could do without, says nothing about this one.
        self.store.take_failure();
        self.lookup
            .pass(shards, limits)
            .map_err(|error| match error {
                PassError::Failed(Error::SideInput { uri, reason }) => {
                    PassError::Failed(match self.store.take_failure() {
                        Some(Failure::OfStore(words)) => Error::Store(words),
                        Some(Failure::Changed(words)) => Error::InputChanged(format!(
                            "{words}: a side input was replaced while the run was on; run again: what was made from the former version is made again"
                        )),
                        None => Error::SideInput { uri, reason },
                    })
                }
                other => other,
            })
    }
}
