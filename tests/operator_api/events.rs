//! What people read under `kubectl describe`, as the API server keeps it.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use operator::events::Events;
use rules::model::{EventKind, EventNote};

use crate::place::Place;

/// The second run's words are not lost behind those of the first, and the same words are told
/// once, with a count.
#[tokio::test]
async fn other_words_are_another_event_and_the_same_words_are_counted() {
    let Some(place) = Place::new("events").await else {
        return;
    };
    let events = Events::new(place.client.clone(), "events-0");
    let about = ObjectReference {
        api_version: Some("sidecarjob.dev/v1alpha1".to_owned()),
        kind: Some("SidecarJob".to_owned()),
        namespace: Some(place.namespace.clone()),
        name: Some("photos".to_owned()),
        uid: Some("4b1f".to_owned()),
        ..ObjectReference::default()
    };
    for words in ["302 to make", "2 to make", "302 to make"] {
        let note = EventNote {
            kind: EventKind::Normal,
            reason: "Planned",
            action: "Plan",
            message: words.to_owned(),
        };
        events.publish(&about, note).await;
    }
    let told: Api<Event> = Api::namespaced(place.client.clone(), &place.namespace);
    let told = told.list(&ListParams::default()).await.unwrap();
    let mut told: Vec<(String, Option<i32>)> = told
        .items
        .into_iter()
        .map(|event| (event.note.unwrap(), event.series.map(|series| series.count)))
        .collect();
    told.sort();
    let expected = [("2 to make", None), ("302 to make", Some(2))];
    assert_eq!(
        told,
        expected.map(|(words, count)| (words.to_owned(), count))
    );
}

/// The name of an event is longer than that of its object, and has the same bound.
#[tokio::test]
async fn an_object_whose_name_is_as_long_as_may_be_has_events() {
    let Some(place) = Place::new("events").await else {
        return;
    };
    let events = Events::new(place.client.clone(), "events-0");
    let name = format!("{}.{}", "a".repeat(235), "b".repeat(17));
    let about = ObjectReference {
        api_version: Some("sidecarjob.dev/v1alpha1".to_owned()),
        kind: Some("SidecarJob".to_owned()),
        namespace: Some(place.namespace.clone()),
        name: Some(name.clone()),
        uid: Some("4b1f".to_owned()),
        ..ObjectReference::default()
    };
    for _ in 0..2 {
        let note = EventNote {
            kind: EventKind::Warning,
            reason: "Planned",
            action: "Plan",
            message: "words".to_owned(),
        };
        events.publish(&about, note).await;
    }
    let told: Api<Event> = Api::namespaced(place.client.clone(), &place.namespace);
    let told = told.list(&ListParams::default()).await.unwrap();
    assert_eq!(told.items.len(), 1);
    let event = &told.items[0];
    assert_eq!(event.regarding.as_ref().unwrap().name.as_ref(), Some(&name));
    assert_eq!(event.series.as_ref().map(|series| series.count), Some(2));
    // One that somebody has deleted is told anew.
    let all: Api<Event> = Api::namespaced(place.client.clone(), &place.namespace);
    let gone = event.metadata.name.as_ref().unwrap();
    all.delete(gone, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let note = EventNote {
        kind: EventKind::Warning,
        reason: "Planned",
        action: "Plan",
        message: "words".to_owned(),
    };
    events.publish(&about, note).await;
    let told = all.list(&ListParams::default()).await.unwrap();
    assert_eq!(told.items.len(), 1);
}
