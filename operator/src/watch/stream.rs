//! Listing and watching one kind, for as long as the process lives.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use serde::de::DeserializeOwned;

use super::cache::ObjectKey;
use super::health::{SILENT_AFTER, WatchHealth};

/// Objects of a page of a listing.
const PAGE: u32 = 500;

/// The server ends a watch after so many seconds; it is then opened again from where it was.
const WATCH_SECONDS: u32 = 290;

/// A watch that ends sooner, without an event, is an error: it must not be begun again at once.
const SHORTEST: Duration = Duration::from_secs(1);

/// Pauses after errors: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// After so many errors in a row without an event in between the kind is listed anew: one event
/// that can't be read must not be asked for for ever.
const ERRORS_BEFORE_A_LISTING: u32 = 3;

/// Whoever wants to know.
pub trait Sink<K>: Send + Sync {
    /// There is an object, or it has changed.
    fn apply(&self, object: K);
    /// There is an object that can't be read.
    fn invalid(&self, invalid: InvalidObject);
    /// An object is gone.
    fn delete(&self, metadata: &ObjectMeta);
    /// A listing is complete: there are no other objects than these.
    fn listed(&self, keys: HashSet<ObjectKey>);
}

/// Why a watch has to be begun again.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error("{0}")]
    Client(#[from] kube::Error),
    #[error("the server says: {reason} ({code}): {message}")]
    Server {
        code: u16,
        reason: String,
        message: String,
    },
    #[error("neither an event nor a bookmark for {0} s")]
    Silent(u64),
    #[error("it ended as soon as it had begun")]
    Ended,
}

impl WatchError {
    /// Whether the version from which to watch is too old.
    fn is_expired(&self) -> bool {
        match self {
            Self::Client(kube::Error::Api(status)) => status.code == 410,
            Self::Server { code, .. } => *code == 410,
            _ => false,
        }
    }
}

/// Which objects are watched, and how.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Labels that they have.
    pub labels: Option<String>,
    /// Fields that they have.
    pub fields: Option<String>,
    /// After so long without an event or a bookmark the watch is begun again.
    pub silent_after: Duration,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            silent_after: SILENT_AFTER,
        }
    }
}

/// Tells `sink` of all objects of `api` that are selected, for ever.
pub async fn watch<K>(
    api: Api<DeserializeGuard<K>>,
    selection: Selection,
    sink: impl Sink<K>,
    health: Arc<WatchHealth>,
) where
    K: Clone + Debug + DeserializeOwned + Resource + Send + 'static,
{
    let watch = Watch {
        api,
        selection,
        sink,
        health,
    };
    watch.run().await;
}

struct Watch<K, S> {
    api: Api<DeserializeGuard<K>>,
    selection: Selection,
    sink: S,
    health: Arc<WatchHealth>,
}

impl<K, S> Watch<K, S>
where
    K: Clone + Debug + DeserializeOwned + Resource + Send + 'static,
    S: Sink<K>,
{
    async fn run(&self) {
        let mut errors = 0;
        let mut version = None;
        loop {
            let from = match version.take() {
                Some(version) => version,
                None => match self.list().await {
                    Ok(version) => version,
                    Err(error) => {
                        self.pause(&mut errors, &error).await;
                        continue;
                    }
                },
            };
            let (reached, end) = self.follow(from, &mut errors).await;
            match end {
                Ok(()) => version = Some(reached),
                Err(error) => {
                    let lists_anew = error.is_expired() || errors + 1 >= ERRORS_BEFORE_A_LISTING;
                    if !lists_anew {
                        version = Some(reached);
                    }
                    self.pause(&mut errors, &error).await;
                }
            }
        }
    }

    /// Lists everything; the version from which to watch.
    async fn list(&self) -> Result<String, WatchError> {
        let mut parameters = ListParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut listed = HashSet::new();
        loop {
            let page = self.api.list(&parameters).await?;
            for object in page.items {
                listed.insert(ObjectKey::of(object.meta()));
                self.tell(object);
            }
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_some() {
                parameters.continue_token = next;
                continue;
            }
            self.sink.listed(listed);
            self.health.note_listed();
            return Ok(page.metadata.resource_version.unwrap_or_default());
        }
    }

    /// Watches from `version` until the server ends it (`Ok`) or something is wrong; with the
    /// version that was reached.
    async fn follow(
        &self,
        mut version: String,
        errors: &mut u32,
    ) -> (String, Result<(), WatchError>) {
        let parameters = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let limit = self.selection.silent_after;
        let opened = tokio::time::timeout(limit, self.api.watch(&parameters, &version));
        let mut events = match opened.await {
            Ok(Ok(events)) => events.boxed(),
            Ok(Err(error)) => return (version, Err(error.into())),
            Err(_) => return (version, Err(WatchError::Silent(limit.as_secs()))),
        };
        let began = Instant::now();
        let mut has_told = false;
        loop {
            let event = match tokio::time::timeout(limit, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return (version, Err(error.into())),
                Ok(None) if has_told || began.elapsed() >= SHORTEST => return (version, Ok(())),
                Ok(None) => return (version, Err(WatchError::Ended)),
                Err(_) => return (version, Err(WatchError::Silent(limit.as_secs()))),
            };
            let reached = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let reached = object.meta().resource_version.clone();
                    self.tell(object);
                    reached
                }
                WatchEvent::Deleted(object) => {
                    self.sink.delete(object.meta());
                    object.meta().resource_version.clone()
                }
                WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
                WatchEvent::Error(status) => {
                    let error = WatchError::Server {
                        code: status.code,
                        reason: status.reason,
                        message: status.message,
                    };
                    return (version, Err(error));
                }
            };
            *errors = 0;
            has_told = true;
            self.health.note_event();
            if let Some(reached) = reached {
                version = reached;
            }
        }
    }

    fn tell(&self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => self.sink.apply(object),
            Err(invalid) => self.sink.invalid(invalid),
        }
    }

    async fn pause(&self, errors: &mut u32, error: &WatchError) {
        let (first, longest) = PAUSES;
        let pause = first.saturating_mul(1 << (*errors).min(10)).min(longest);
        *errors = errors.saturating_add(1);
        self.health.note_restart();
        if !error.is_expired() {
            tracing::warn!(kind = self.health.kind, %error, "the watch has to be begun again");
        }
        tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
    }
}
