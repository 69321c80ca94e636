//! The output against the plan and what was recorded: three sorted streams, joined by path.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use storage::state::RunId;
use storage::state::manifest::Recorded;
use storage::state::merge::{MergedLines, OnDamage, RecordedLine};
use storage::state::plan::{PlanLine, PlanReader, PlanSummary};
use storage::state::shard_lines::{ShardLine, ShardStatus};
use storage::{Error, ListPage, ObjectMeta, Store};

use super::trouble::Failed;

/// What is known of one path: at least one of the three.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The shard to make.
    pub(super) planned: Option<PlanLine>,
    /// What is there.
    pub(super) output: Option<ObjectMeta>,
    /// What was recorded last.
    pub(super) recorded: Option<RecordedLine>,
}

/// What became of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was made, and it is there.
    Whole(ObjectMeta, ShardLine),
    /// It was made, and another version is there: its footer decides.
    Other(ObjectMeta, ShardLine, u64),
    /// It failed for a reason of its own.
    Failed(String),
    /// The chunk has to be done again, in words why.
    Missing(u64, String),
    /// The same, but something is there that nobody has told of.
    Unrecorded(u64, String),
    /// It was in place when the run began, and is not any more; unless its main shard had gone.
    Gone(ShardLine),
    /// It is in place, or none of this run's affairs.
    Fine,
}

impl Found {
    /// What became of the path in `run`, which has the pipeline of `digest`.
    pub(super) fn judge(self, run: &RunId, digest: &str) -> Verdict {
        let is_there = |line: &ShardLine, object: &ObjectMeta| {
            line.output
                .as_ref()
                .is_some_and(|made| made.etag == object.etag && made.size == object.size)
        };
        let Some(planned) = self.planned else {
            let recorded = self.recorded.filter(|recorded| {
                recorded.line.status == ShardStatus::Done && recorded.part.digest == digest
            });
            return match (recorded, self.output) {
                (Some(recorded), Some(object)) if is_there(&recorded.line, &object) => {
                    Verdict::Fine
                }
                (Some(recorded), _) => Verdict::Gone(recorded.line),
                (None, _) => Verdict::Fine,
            };
        };
        let path = planned.path;
        let ours = self.recorded.filter(|recorded| recorded.part.run == *run);
        match (ours, self.output) {
            (None, there) => {
                let words = format!("no line of this run says what became of {path}");
                let old = planned.existing.map(|existing| existing.etag);
                match there {
                    Some(object) if old.as_ref() != Some(&object.etag) => {
                        Verdict::Unrecorded(planned.chunk, words)
                    }
                    _ => Verdict::Missing(planned.chunk, words),
                }
            }
            (Some(ours), _) if ours.line.status == ShardStatus::Failed => {
                let reason = ours.line.reason;
                Verdict::Failed(
                    reason.unwrap_or_else(|| "it failed; no reason is known".to_owned()),
                )
            }
            (Some(_), None) => {
                let words = format!("{path} was reported done and is not there");
                Verdict::Missing(planned.chunk, words)
            }
            (Some(ours), Some(object)) if is_there(&ours.line, &object) => {
                Verdict::Whole(object, ours.line)
            }
            (Some(ours), Some(object)) => Verdict::Other(object, ours.line, planned.chunk),
        }
    }
}

/// The three streams.
pub(super) struct Walk<'a> {
    plan: PlanLines<'a>,
    output: Objects<'a>,
    lines: MergedLines,
    next_line: Option<RecordedLine>,
    has_lines: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        output: &'a Arc<dyn Store>,
        plan: &'a PlanSummary,
        recorded: &Recorded,
    ) -> Self {
        Self {
            plan: PlanLines {
                store: &**output,
                plan,
                next_part: 0,
                reader: None,
                next: None,
            },
            output: Objects {
                pages: output.list_shards(),
                page: VecDeque::new(),
            },
            lines: recorded.lines(output, OnDamage::Skip),
            next_line: None,
            has_lines: true,
        }
    }

    /// The next path with what is known of it; `None` at the end.
    ///
    /// # Errors
    /// If a listing, the plan or the lines can't be read.
    pub(super) async fn next(&mut self) -> Result<Option<(String, Found)>, Failed> {
        if self.next_line.is_none() && self.has_lines {
            self.next_line = self.lines.next_line().await?;
            self.has_lines = self.next_line.is_some();
        }
        self.plan.fill().await?;
        self.output.fill().await?;
        let paths = [
            self.plan.next.as_ref().map(|line| &line.path),
            self.output.page.front().map(|object| &object.key),
            self.next_line.as_ref().map(|recorded| &recorded.line.path),
        ];
        let Some(path) = paths.into_iter().flatten().min().cloned() else {
            return Ok(None);
        };
        let found = Found {
            planned: self.plan.next.take_if(|line| line.path == path),
            output: self.output.page.pop_front_if(|object| object.key == path),
            recorded: self.next_line.take_if(|known| known.line.path == path),
        };
        Ok(Some((path, found)))
    }
}

/// The lines of a plan, part by part.
struct PlanLines<'a> {
    store: &'a dyn Store,
    plan: &'a PlanSummary,
    next_part: u64,
    reader: Option<PlanReader>,
    next: Option<PlanLine>,
}

impl PlanLines<'_> {
    async fn fill(&mut self) -> Result<(), Failed> {
        while self.next.is_none() {
            if self.reader.is_none() {
                if self.next_part >= self.plan.parts {
                    return Ok(());
                }
                let opened = PlanReader::open_part(self.store, self.plan, self.next_part);
                self.reader = Some(opened.await?);
                self.next_part += 1;
            }
            if let Some(reader) = &mut self.reader {
                self.next = reader.next_line()?;
            }
            if self.next.is_none() {
                self.reader = None;
            }
        }
        Ok(())
    }
}

/// The objects of a listing, one by one.
struct Objects<'a> {
    pages: BoxStream<'a, Result<ListPage, Error>>,
    page: VecDeque<ObjectMeta>,
}

impl Objects<'_> {
    async fn fill(&mut self) -> Result<(), Failed> {
        while self.page.is_empty() {
            match self.pages.next().await {
                Some(page) => self.page = page?.shards.into(),
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
