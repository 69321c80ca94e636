//! The name of a run: when it began, to the millisecond, and four random characters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use thiserror::Error;

/// Base32 in byte order, so that numbers sort as texts.
const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
const RANDOM_CHARACTERS: usize = 4;
/// Two characters tell 1,024 apart, a second has 1,000 milliseconds.
const LENGTH: usize = 8 + 1 + 6 + 1 + 2 + RANDOM_CHARACTERS;

/// A text that is no name of a run.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{text:?} is no run id: expected <yyyymmdd>-<hhmmss>-<six of a-z and 2-7>")]
pub struct InvalidRunId {
    /// What was given.
    pub text: String,
}

/// The name of a run, `<yyyymmdd>-<hhmmss>-<6 of base32>` in UTC; the first two of the six are
/// the milliseconds. Byte order is the order in which runs began, also of two that follow one
/// another within a second, since the newer of two lines for a shard is told by it; it is a legal DNS label and a legal Kubernetes label value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// The run that begins at `now`; the low 20 bits of `random` keep it apart from others.
    pub fn new(now: OffsetDateTime, random: u32) -> Self {
        let now = now.to_offset(time::UtcOffset::UTC);
        let mut text = format!(
            "{:04}{:02}{:02}-{:02}{:02}{:02}-",
            now.year().clamp(0, 9999),
            u8::from(now.month()),
            now.day(),
            now.hour(),
            now.minute(),
            now.second(),
        );
        let character = |index: u32| char::from(ALPHABET[(index & 31) as usize]);
        let milliseconds = u32::from(now.millisecond());
        text.push(character(milliseconds >> 5));
        text.push(character(milliseconds));
        text.extend((0..RANDOM_CHARACTERS).map(|position| character(random >> (5 * position))));
        Self(text)
    }

    /// The run that begins at `now` and comes after `earlier`, also if the clock says that it
    /// began before: that of whoever leads now may be behind.
    pub fn after(earlier: Option<&Self>, now: OffsetDateTime, random: u32) -> Self {
        let next = Self::new(now, random);
        match earlier {
            Some(earlier) if next <= *earlier => match earlier.began() {
                Some(began) => Self::new(began + time::Duration::milliseconds(1), random),
                None => next,
            },
            _ => next,
        }
    }

    /// When the run began, by its name.
    fn began(&self) -> Option<OffsetDateTime> {
        let number = |range: std::ops::Range<usize>| self.0.get(range)?.parse::<u32>().ok();
        let small = |range| number(range).and_then(|number| u8::try_from(number).ok());
        let digit = |position: usize| {
            let byte = self.0.as_bytes().get(position)?;
            let found = ALPHABET.iter().position(|known| known == byte)?;
            i64::try_from(found).ok()
        };
        let year = i32::try_from(number(0..4)?).ok()?;
        let month = time::Month::try_from(small(4..6)?).ok()?;
        let date = time::Date::from_calendar_date(year, month, small(6..8)?).ok()?;
        let time = time::Time::from_hms(small(9..11)?, small(11..13)?, small(13..15)?).ok()?;
        let milliseconds = (digit(16)? << 5) + digit(17)?;
        let began = time::PrimitiveDateTime::new(date, time).assume_utc();
        began.checked_add(time::Duration::milliseconds(milliseconds))
    }

    /// A run that begins now.
    pub fn generate() -> Self {
        Self::new(OffsetDateTime::now_utc(), rand::random())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = InvalidRunId;

    fn from_str(text: &str) -> Result<Self, InvalidRunId> {
        if is_run_id(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidRunId {
                text: text.to_owned(),
            })
        }
    }
}

impl TryFrom<String> for RunId {
    type Error = InvalidRunId;

    fn try_from(text: String) -> Result<Self, InvalidRunId> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

fn is_run_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == LENGTH
        && bytes
            .iter()
            .enumerate()
            .all(|(position, byte)| match position {
                8 | 15 => *byte == b'-',
                0..=14 => byte.is_ascii_digit(),
                _ => ALPHABET.contains(byte),
            })
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn names_begin_with_the_time_in_utc() {
        let run = RunId::new(datetime!(2025-06-01 12:15:09 +02:00), 0);
        assert_eq!(run.as_str(), "20250601-101509-222222");
        assert_eq!(
            RunId::new(datetime!(2025-06-01 0:00 UTC), u32::MAX).as_str(),
            "20250601-000000-22zzzz"
        );
    }

    #[test]
    fn later_runs_sort_later() {
        let early = RunId::new(datetime!(2025-12-31 23:59:59 UTC), u32::MAX);
        let late = RunId::new(datetime!(2026-01-01 0:00:00 UTC), 0);
        assert!(early < late);
        let mut runs: Vec<RunId> = (0..1000)
            .map(|millisecond| {
                let now =
                    datetime!(2025-06-01 10:15:09 UTC) + time::Duration::milliseconds(millisecond);
                RunId::new(now, if millisecond & 1 == 0 { u32::MAX } else { 0 })
            })
            .collect();
        let in_order = runs.clone();
        runs.sort();
        assert_eq!(runs, in_order);
    }

    #[test]
    fn a_run_comes_after_another_whatever_the_clock() {
        let now = datetime!(2025-06-01 10:15:09.999 UTC);
        let earlier = RunId::new(now, u32::MAX);
        for behind in [0, 1, 1000, 86_400_000] {
            let clock = now - time::Duration::milliseconds(behind);
            let later = RunId::after(Some(&earlier), clock, 0);
            assert!(later > earlier, "{later} after {earlier}");
            assert_eq!(later.as_str(), "20250601-101510-222222");
        }
        let ahead = now + time::Duration::milliseconds(7);
        let plain = RunId::new(ahead, 3);
        assert_eq!(RunId::after(Some(&earlier), ahead, 3), plain);
        assert_eq!(RunId::after(None, ahead, 3), plain);
        // A name that is no time can't be followed.
        let odd: RunId = "99999999-999999-222222".parse().unwrap();
        assert_eq!(RunId::after(Some(&odd), ahead, 3), plain);
    }

    #[test]
    fn only_whole_names_parse() {
        let run = RunId::generate();
        assert_eq!(run.as_str().parse::<RunId>().unwrap(), run);
        for wrong in [
            "",
            "20250601-101509",
            "20250601-101509-aaaaa",
            "20250601-101509-aaaaaaa",
            "20250601-101509-AAAAAA",
            "20250601-101509-aaaa1a",
            "20250601_101509-aaaaaa",
            "2025060x-101509-aaaaaa",
            "../../..-......-aaaaaa",
        ] {
            let error = wrong.parse::<RunId>().unwrap_err().to_string();
            assert!(error.contains("is no run id"), "{error}");
        }
    }
}
