//! Conditions by kstatus: built anew at each decision, times kept where nothing has changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::reasons::types;

/// Most bytes of a message, as JSON: the object has to stay small whatever others say.
pub const MESSAGE_BYTES: usize = 512;

/// The conditions of an object, in the making.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// As they were: where their times come from, however often one is set on the way.
    present: Vec<Condition>,
    list: Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl Conditions {
    /// Begins with those that the object has; those that somebody else put there are dropped.
    pub fn new(present: &[Condition], generation: i64, now: Timestamp) -> Self {
        let mut list: Vec<Condition> = present
            .iter()
            .filter(|condition| types::ALL.contains(&condition.type_.as_str()))
            .cloned()
            .collect();
        for condition in &mut list {
            condition.observed_generation = Some(generation);
        }
        Self {
            present: list.clone(),
            list,
            generation,
            now,
        }
    }

    /// Sets a condition. Its transition time stays unless its status changes.
    pub fn set(&mut self, kind: &str, status: Status, reason: &str, message: &str) {
        let is_same = |found: &&Condition| found.type_ == kind && found.status == status.word();
        let since = self.present.iter().find(is_same).map_or_else(
            || Time(seconds(self.now)),
            |found| found.last_transition_time.clone(),
        );
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.word().to_owned(),
            reason: word(reason),
            message: clip(message, MESSAGE_BYTES),
            observed_generation: Some(self.generation),
            last_transition_time: since,
        };
        match self.list.iter_mut().find(|found| found.type_ == kind) {
            Some(found) => *found = condition,
            None => self.list.push(condition),
        }
    }

    /// Takes a condition away.
    pub fn remove(&mut self, kind: &str) {
        self.list.retain(|condition| condition.type_ != kind);
    }

    /// The condition of this type.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.list.iter().find(|condition| condition.type_ == kind)
    }

    /// Whether the condition of this type is there and true.
    pub fn is_true(&self, kind: &str) -> bool {
        self.get(kind)
            .is_some_and(|condition| condition.status == Status::True.word())
    }

    /// The list, in one order whatever the order of calls was.
    pub fn into_list(mut self) -> Vec<Condition> {
        let position = |condition: &Condition| {
            types::ALL
                .iter()
                .position(|kind| *kind == condition.type_)
                .unwrap_or(types::ALL.len())
        };
        self.list.sort_by_key(position);
        self.list
    }
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// It holds.
    True,
    /// It doesn't.
    False,
    /// It isn't known yet.
    Unknown,
}

impl Status {
    /// As the API has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A time as statuses have it: whole seconds.
pub fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A reason that came from elsewhere, as the API demands it: a letter, then letters and digits.
fn word(reason: &str) -> String {
    let word: String = reason
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .skip_while(char::is_ascii_digit)
        .take(64)
        .collect();
    if word.is_empty() {
        "Unknown".to_owned()
    } else {
        word
    }
}

/// A text of at most `limit` bytes as JSON. What is too long keeps its beginning and its end: the
/// end of a path, or of a chain of errors, tells most.
pub fn clip(text: &str, limit: usize) -> String {
    if json_bytes(text) <= limit {
        return text.to_owned();
    }
    const GAP: &str = " … ";
    let half = limit.saturating_sub(GAP.len()) / 2;
    let take = |characters: &mut dyn Iterator<Item = char>| {
        let mut left = half;
        let mut taken = Vec::new();
        for character in characters {
            let bytes = json_width(character);
            if bytes > left {
                break;
            }
            left -= bytes;
            taken.push(character);
        }
        taken
    };
    let head = take(&mut text.chars());
    let tail = take(&mut text.chars().rev());
    head.into_iter()
        .chain(GAP.chars())
        .chain(tail.into_iter().rev())
        .collect()
}

/// Bytes of a text as JSON, without the quotes.
pub fn json_bytes(text: &str) -> usize {
    text.chars().map(json_width).sum()
}

fn json_width(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        // Go's encoder, through which the object goes, writes these as \u003c and so on.
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{7f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn times_change_with_the_status_only() {
        let mut first = Conditions::new(&[], 1, at(10));
        first.set(types::READY, Status::Unknown, "Progressing", "one");
        first.set(types::PLANNED, Status::True, "Planned", "all");
        let list = first.into_list();

        let mut second = Conditions::new(&list, 2, at(20));
        second.set(types::READY, Status::Unknown, "OutputLocked", "two");
        second.set(types::PLANNED, Status::False, "Planned", "none");
        let list = second.into_list();
        let ready = &list[0];
        assert_eq!(ready.type_, "Ready");
        assert_eq!(
            (ready.reason.as_str(), ready.message.as_str()),
            ("OutputLocked", "two")
        );
        assert_eq!(ready.observed_generation, Some(2));
        assert_eq!(ready.last_transition_time.0, at(10));
        assert_eq!(list[1].last_transition_time.0, at(20));
    }

    #[test]
    fn a_detour_leaves_the_time() {
        let mut first = Conditions::new(&[], 1, at(10));
        first.set(types::READY, Status::False, "SpecChangedAfterStart", "one");
        let list = first.into_list();
        let mut second = Conditions::new(&list, 1, at(20));
        second.set(types::READY, Status::True, "Completed", "two");
        second.remove(types::READY);
        second.set(types::READY, Status::False, "SpecChangedAfterStart", "one");
        assert_eq!(second.into_list(), list);
    }

    #[test]
    fn order_does_not_depend_on_the_calls() {
        let mut conditions = Conditions::new(&[], 1, at(0));
        for kind in types::ALL.iter().rev() {
            conditions.set(kind, Status::True, "A", "");
        }
        conditions.remove(types::STALLED);
        let order: Vec<String> = conditions
            .into_list()
            .into_iter()
            .map(|condition| condition.type_)
            .collect();
        let expected: Vec<&str> = types::ALL
            .into_iter()
            .filter(|kind| *kind != types::STALLED)
            .collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn reasons_from_elsewhere_are_made_legal() {
        assert_eq!(word("9 No-Shards!"), "NoShards");
        assert_eq!(word("…"), "Unknown");
    }

    #[test]
    fn clipped_texts_keep_both_ends() {
        assert_eq!(clip("short", 5), "short");
        let path = format!("{}/00077.parquet", "a".repeat(600));
        let clipped = clip(&path, 100);
        assert!(clipped.starts_with("aaaa") && clipped.ends_with("00077.parquet"));
        for text in [
            "\u{1}".repeat(500),
            "\"".repeat(500),
            "é<".repeat(500),
            path,
        ] {
            let clipped = clip(&text, 101);
            assert!(json_bytes(&clipped) <= 101, "{clipped}");
            assert!(clipped.len() > 10);
        }
    }
}
