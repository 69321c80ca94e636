//! Events: what people read under `kubectl describe`. The same words again are one event with a
//! count; other words are another event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};

use rules::model::{EventKind, EventNote};

/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// The API server refuses longer names.
const LONGEST_NAME: usize = 253;

/// For so long an event that was told is counted when it comes again.
const REMEMBERED: Duration = Duration::from_mins(6);

/// Who tells them.
const CONTROLLER: &str = "sidecarjob-operator";

/// Tells people.
#[derive(Clone)]
pub struct Events {
    client: Client,
    instance: String,
    told: Arc<Mutex<HashMap<Words, Told>>>,
}

/// What makes two events the same one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Words {
    namespace: String,
    name: String,
    uid: String,
    reason: &'static str,
    note: String,
}

/// An event that the API server has.
#[derive(Clone, Debug)]
struct Told {
    name: String,
    count: i32,
    at: Instant,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Events")
    }
}

impl Events {
    /// Events of the replica `instance`.
    pub fn new(client: Client, instance: &str) -> Self {
        Self {
            client,
            instance: instance.to_owned(),
            told: Arc::default(),
        }
    }

    /// Publishes a note about an object. What can't be published is logged: no work waits for it.
    pub async fn publish(&self, about: &ObjectReference, note: EventNote) {
        if let Err(error) = self.tell(about, &note).await {
            tracing::warn!(
                namespace = about.namespace,
                name = about.name,
                reason = note.reason,
                %error,
                "can't publish an event: {}", note.message
            );
        }
    }

    async fn tell(&self, about: &ObjectReference, note: &EventNote) -> Result<(), kube::Error> {
        let words = Words {
            namespace: about.namespace.clone().unwrap_or_default(),
            name: about.name.clone().unwrap_or_default(),
            uid: about.uid.clone().unwrap_or_default(),
            reason: note.reason,
            note: cut(&note.message, LONGEST_NOTE),
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &words.namespace);
        if let Some(known) = self.known(&words) {
            let count = known.count.saturating_add(1);
            match count_again(&events, &known.name, count).await {
                Ok(()) => {
                    self.remember(words, known.name, count);
                    return Ok(());
                }
                // Somebody has deleted it, or its time was over: it is told anew.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let event = self.event(about, note, &words);
        events.create(&PostParams::default(), &event).await?;
        self.remember(words, event.name_any(), 1);
        Ok(())
    }

    fn event(&self, about: &ObjectReference, note: &EventNote, words: &Words) -> Event {
        let now = Timestamp::now();
        let kind = match note.kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                namespace: about.namespace.clone(),
                name: Some(name_of_event(&words.name, now)),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            action: Some(note.action.to_owned()),
            reason: Some(note.reason.to_owned()),
            note: Some(words.note.clone()),
            type_: Some(kind.to_owned()),
            regarding: Some(ObjectReference {
                // It is about the object, not about one version of it.
                resource_version: None,
                ..about.clone()
            }),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    fn known(&self, words: &Words) -> Option<Told> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, known| known.at.elapsed() < REMEMBERED);
        told.get(words).cloned()
    }

    fn remember(&self, words: Words, name: String, count: i32) {
        let at = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(words, Told { name, count, at });
    }
}

async fn count_again(events: &Api<Event>, name: &str, count: i32) -> Result<(), kube::Error> {
    let series = EventSeries {
        count,
        last_observed_time: MicroTime(Timestamp::now()),
    };
    let patch = serde_json::json!({"series": series});
    events
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// As much of the object's name as leaves room for what no other event has. What is cut off must
/// not leave a name behind that isn't one: each part between dots ends in a letter or digit.
fn name_of_event(object: &str, now: Timestamp) -> String {
    let suffix = format!("{:x}", now.as_nanosecond());
    let room = LONGEST_NAME - suffix.len() - 1;
    let end = object.floor_char_boundary(room);
    let short = object[..end].trim_end_matches(['.', '-']);
    format!("{short}.{suffix}")
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
    fn every_object_has_names_for_its_events() {
        let now = Timestamp::UNIX_EPOCH + Duration::from_nanos(0x1122_3344_5566_7788);
        assert_eq!(name_of_event("photos", now), "photos.1122334455667788");
        for (object, length) in [
            ("x".repeat(236), 253),
            ("x".repeat(253), 253),
            (format!("{}.-{}", "x".repeat(235), "y".repeat(10)), 252),
        ] {
            let name = name_of_event(&object, now);
            assert_eq!(name.len(), length, "{name}");
            assert!(name.ends_with("x.1122334455667788"), "{name}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("abcdefghij", 6), "abc…");
        assert_eq!(cut("ääää", 6), "ä…");
        assert_eq!(cut("ääää", 8), "ääää");
    }
}
