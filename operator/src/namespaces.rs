//! Which namespaces are being deleted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;

use crate::api_words::api_words;

/// For so long a namespace that is not being deleted is not asked about again.
const STAYS: Duration = Duration::from_secs(5);

/// Asks the API server, now and then.
pub struct Namespaces {
    api: Api<Namespace>,
    /// Those that were there, and when.
    stayed: Mutex<HashMap<String, Instant>>,
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Namespaces")
    }
}

impl Namespaces {
    /// Nothing is asked yet.
    pub fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
            stayed: Mutex::default(),
        }
    }

    /// Whether the namespace is being deleted. `false` where the operator may not look, or gets no
    /// answer: then the namespace's deletion waits for what only a person can mend.
    pub async fn is_going(&self, name: &str) -> bool {
        if self.has_just_stayed(name) {
            return false;
        }
        match self.api.get_metadata_opt(name).await {
            Ok(found) => {
                let stays = found.is_some_and(|found| found.metadata.deletion_timestamp.is_none());
                if stays {
                    self.note_stays(name);
                }
                !stays
            }
            Err(error) => {
                tracing::warn!(
                    namespace = name,
                    error = api_words(&error),
                    "can't see whether it is being deleted"
                );
                self.note_stays(name);
                false
            }
        }
    }

    fn has_just_stayed(&self, name: &str) -> bool {
        let mut stayed = self.stayed.lock().unwrap_or_else(PoisonError::into_inner);
        stayed.retain(|_, at| at.elapsed() < STAYS);
        stayed.contains_key(name)
    }

    fn note_stays(&self, name: &str) {
        let mut stayed = self.stayed.lock().unwrap_or_else(PoisonError::into_inner);
        stayed.insert(name.to_owned(), Instant::now());
    }
}
