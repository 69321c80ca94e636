//! Events: what people read under `kubectl describe`. The same words again are one event with a
//! count; other words are another event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::model::{EventKind, EventNote};

/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// How long a recorder remembers what it has told.
const REMEMBERED: Duration = Duration::from_mins(6);

/// Tells people.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    /// A recorder takes whatever has the same reason for a repeat, and keeps the first words. So
    /// there is one for each text.
    recorders: Arc<Mutex<HashMap<String, (Recorder, Instant)>>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Events")
    }
}

impl Events {
    /// Events of the replica `instance`.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter {
            controller: "sidecarjob-operator".to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            client,
            reporter,
            recorders: Arc::default(),
        }
    }

    fn recorder(&self, note: &str) -> Recorder {
        let now = Instant::now();
        let mut recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recorders.retain(|_, (_, used)| now.duration_since(*used) < REMEMBERED);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let (recorder, used) = recorders
            .entry(note.to_owned())
            .or_insert_with(|| (new(), now));
        *used = now;
        recorder.clone()
    }

    /// Publishes a note about an object. What can't be published is logged: no work waits for it.
    pub async fn publish(&self, about: &ObjectReference, note: EventNote) {
        let EventNote {
            kind,
            reason,
            action,
            message,
        } = note;
        let note = cut(&message, LONGEST_NOTE);
        let recorder = self.recorder(&note);
        let event = Event {
            type_: match kind {
                EventKind::Normal => EventType::Normal,
                EventKind::Warning => EventType::Warning,
            },
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        // Repeats are told by the whole reference; the version would make each the first.
        let about = ObjectReference {
            resource_version: None,
            ..about.clone()
        };
        if let Err(error) = recorder.publish(&event, &about).await {
            tracing::warn!(
                namespace = about.namespace,
                name = about.name,
                reason,
                %error,
                "can't publish an event: {message}"
            );
        }
    }
}

/// At most `bytes` of a text, with a mark where it was cut.
pub fn cut(text: &str, bytes: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(MARK.len()));
    format!("{}{MARK}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("abcdefghij", 6), "abc…");
        assert_eq!(cut("ääää", 6), "ä…");
        assert_eq!(cut("ääää", 8), "ääää");
    }
}
