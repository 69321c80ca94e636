//! `failures.jsonl`: every failed shard of a run with its reason, for people.

use serde::Serialize;
use storage::state::report::Failure;
use storage::state::{FORMAT_VERSION, RunId};
use storage::{Error, Payload, PutCondition, Store};

use rules::model::FailureNote;

/// Failures that facts name.
const NOTED: usize = 10;
/// Bytes of the report, at most: it is held in memory.
const LONGEST: usize = 32 << 20;
/// How often a report that somebody else has rewritten is met with another try.
const WRITE_ATTEMPTS: usize = 5;

#[derive(Serialize)]
struct Header<'a> {
    version: u32,
    run: &'a RunId,
    digest: &'a str,
}

#[derive(Serialize)]
struct Footer {
    more: u64,
}

/// Collects failed shards, in ascending order of their paths.
pub(super) struct FailureReport {
    bytes: Vec<u8>,
    first: Vec<FailureNote>,
    count: u64,
    left_out: u64,
    longest: usize,
}

impl FailureReport {
    pub(super) fn new(run: &RunId, digest: &str) -> Self {
        Self::with_longest(run, digest, LONGEST)
    }

    fn with_longest(run: &RunId, digest: &str, longest: usize) -> Self {
        let header = Header {
            version: FORMAT_VERSION,
            run,
            digest,
        };
        let mut report = Self {
            bytes: Vec::new(),
            first: Vec::new(),
            count: 0,
            left_out: 0,
            longest,
        };
        report.push_line(&header);
        report
    }

    pub(super) fn add(&mut self, path: String, reason: String) {
        self.count += 1;
        if self.first.len() < NOTED {
            self.first.push(FailureNote {
                path: path.clone(),
                reason: super::book::cut(&reason).to_owned(),
            });
        }
        if self.bytes.len() < self.longest {
            self.push_line(&Failure { path, reason });
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The first few.
    pub(super) fn first(&self) -> &[FailureNote] {
        &self.first
    }

    /// Writes the report below the output, whatever an earlier attempt left there.
    pub(super) async fn write(mut self, store: &dyn Store, key: &str) -> Result<(), Error> {
        if self.left_out > 0 {
            let footer = Footer {
                more: self.left_out,
            };
            self.push_line(&footer);
        }
        let payload = Payload::new(self.bytes);
        let mut condition = PutCondition::Create;
        for attempt in 1.. {
            match store.put(key, payload.clone(), condition).await {
                Ok(_) => return Ok(()),
                Err(error) if attempt < WRITE_ATTEMPTS && error.is_conflict() => {}
                Err(error) => return Err(error),
            }
            condition = match store.head(key).await {
                Ok(found) => PutCondition::Replace(found.etag),
                Err(error) if error.is_not_found() => PutCondition::Create,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn push_line(&mut self, line: &impl Serialize) {
        // Numbers and texts always have a JSON form, and a vector takes all of it.
        if serde_json::to_writer(&mut self.bytes, line).is_ok() {
            self.bytes.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let run = RunId::generate();
        let mut report = FailureReport::with_longest(&run, "d", 32 << 10);
        let reason = "x".repeat(1 << 10);
        for number in 0..40 {
            report.add(format!("{number:04}.parquet"), reason.clone());
        }
        assert_eq!((report.count(), report.left_out), (40, 9));
        assert_eq!(report.first().len(), NOTED);
        assert_eq!(report.first()[9].path, "0009.parquet");
        assert!(report.first()[9].reason.len() < 1000);
        let lines = report.bytes.split(|byte| *byte == b'\n').count();
        assert_eq!(lines, 1 + 31 + 1);
    }
}
