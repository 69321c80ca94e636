//! The termination message: what a pod leaves for whoever looks at it, in one line of JSON.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use storage::state::batch::WorkItem;
use storage::state::report::Seconds;

use crate::chunk::Outcome;

/// Where a container leaves its message, unless its spec says otherwise.
pub const DEFAULT_PATH: &str = "/dev/termination-log";

/// Bytes that Kubernetes keeps of a message.
const MOST_BYTES: usize = 4096;

#[derive(Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<WorkItem>,
    done: u64,
    failed: u64,
    kept: u64,
    rows: u64,
    matched: u64,
    seconds: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The message of a work item that ended for `reason`: an error, or the first failure. A reason
/// that is too long is cut.
pub fn message(outcome: &Outcome, reason: Option<&str>) -> String {
    let counts = &outcome.counts;
    let text = |reason: Option<&str>| {
        let message = Message {
            item: outcome.item,
            done: counts.shards_done,
            failed: counts.shards_failed,
            kept: counts.shards_skipped,
            rows: counts.rows,
            matched: counts.matched,
            seconds: rounded(counts.seconds),
            reason,
        };
        serde_json::json!(message).to_string()
    };
    let whole = text(reason);
    let (Some(reason), Some(excess)) = (reason, whole.len().checked_sub(MOST_BYTES + 1)) else {
        return whole;
    };
    // A byte of the reason takes one of JSON at least.
    const CUT: &str = "…";
    let kept = reason.len().saturating_sub(excess + 1 + CUT.len());
    let cut = &reason[..reason.floor_char_boundary(kept)];
    text(Some(&format!("{cut}{CUT}")))
}

/// To the millisecond.
fn rounded(seconds: Seconds) -> Seconds {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    Seconds {
        start: round(seconds.start),
        index_pass: round(seconds.index_pass),
        shards: round(seconds.shards),
    }
}

/// Makes sure that a message can be left at a path that somebody named, before the work begins.
///
/// # Errors
/// If the file can't be written.
pub fn check(path: &Path) -> std::io::Result<()> {
    if path == Path::new(DEFAULT_PATH) {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options.open(path).map(drop)
}

/// Leaves the message. The file of a container is there already; outside of one nothing is left
/// at the default path.
pub fn leave(path: &Path, message: &str) {
    let is_default = path == Path::new(DEFAULT_PATH);
    let opened = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .create(!is_default)
        .open(path);
    let written = opened.and_then(|mut file| file.write_all(message.as_bytes()));
    match written {
        Err(error) if !is_default => {
            tracing::warn!(path = %path.display(), %error, "the termination message can't be left");
        }
        Err(error) => tracing::debug!(%error, "no termination message is left"),
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_fits_whatever_the_reason() {
        let outcome = Outcome {
            item: Some(WorkItem {
                first: u64::MAX - 1,
                end: u64::MAX,
            }),
            ..Outcome::default()
        };
        let quoted = "\"\\\n".repeat(3000);
        for reason in [
            "x".repeat(20_000),
            "ä€🦀".repeat(3000),
            quoted,
            "short".to_owned(),
        ] {
            let message = message(&outcome, Some(&reason));
            assert!(message.len() <= MOST_BYTES, "{}", message.len());
            assert!(!message.contains('\n'));
            let parsed: serde_json::Value = serde_json::from_str(&message).unwrap();
            let kept = parsed["reason"].as_str().unwrap();
            assert!(reason.starts_with(kept.trim_end_matches('…')));
            assert_eq!(kept.ends_with('…'), reason.len() > 100);
            assert_eq!(parsed["item"][1], u64::MAX);
        }
        assert!(!message(&Outcome::default(), None).contains("reason"));
    }
}
