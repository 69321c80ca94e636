//! Events: what people read under `kubectl describe`. One recorder for the process, which
//! groups repeats.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::model::{EventKind, EventNote};

/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// Tells people.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
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
            recorder: Recorder::new(client, reporter),
        }
    }

    /// Publishes a note about an object. What can't be published is logged: no work waits for it.
    pub async fn publish(&self, about: &ObjectReference, note: EventNote) {
        let EventNote {
            kind,
            reason,
            action,
            message,
        } = note;
        let event = Event {
            type_: match kind {
                EventKind::Normal => EventType::Normal,
                EventKind::Warning => EventType::Warning,
            },
            reason: reason.to_owned(),
            note: Some(cut(&message, LONGEST_NOTE)),
            action: action.to_owned(),
            secondary: None,
        };
        // Repeats are told by the whole reference; the version would make each the first.
        let about = ObjectReference {
            resource_version: None,
            ..about.clone()
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
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
