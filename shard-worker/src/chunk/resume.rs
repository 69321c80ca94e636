//! What is left to do of a work item: what is there and right is kept, whoever made it.
//!
//! Shards are vouched for by the lines that an earlier attempt left, else by their footers: a
//! worker that was killed left no lines.

use std::collections::BTreeMap;

use futures::StreamExt;
use storage::ObjectMeta;
use storage::state::diff::{Decision, Policy};
use storage::state::join::Planned as Found;
use storage::state::plan::{Existing, ExistingAction, PlanLine};
use storage::state::shard_lines::{ShardLine, ShardStatus};

use crate::error::{Result, ShardError};
use crate::job::Job;
use crate::run::decision::{Decided, conflict, decide};
use crate::run::tally::ShardOutcome;

/// Footers that are read at once.
const FOOTERS_IN_FLIGHT: usize = 64;

/// A work item, sorted out.
pub struct Resumed {
    /// Shards to make.
    pub todo: Vec<PlanLine>,
    /// Lines of the shards that are kept.
    pub kept: Vec<ShardLine>,
    /// Shards that can't be made.
    pub failed: Vec<ShardOutcome>,
}

/// How a shard stands, by the listing and the lines of an earlier attempt.
#[derive(Debug, PartialEq)]
enum Standing {
    /// It is made.
    Make(PlanLine),
    /// It is there and right.
    Keep(ShardLine),
    /// Its footer decides.
    Look(PlanLine, ObjectMeta),
}

/// Sorts out the shards of an item. `there` are those that exist, `earlier` the lines of an
/// earlier attempt; all are sorted by path.
pub async fn resume(
    job: &Job,
    replaces: &[String],
    lines: Vec<PlanLine>,
    there: &[ObjectMeta],
    earlier: &[ShardLine],
) -> Result<Resumed> {
    let there: BTreeMap<&str, &ObjectMeta> =
        there.iter().map(|meta| (meta.key.as_str(), meta)).collect();
    let earlier: BTreeMap<&str, &ShardLine> = earlier
        .iter()
        .map(|line| (line.path.as_str(), line))
        .collect();
    let mut resumed = Resumed {
        todo: Vec::new(),
        kept: Vec::new(),
        failed: Vec::new(),
    };
    let mut unsure = Vec::new();
    for line in lines {
        let found = there.get(line.path.as_str()).copied();
        let known = earlier.get(line.path.as_str()).copied();
        match standing(line, found, known) {
            Standing::Make(line) => resumed.todo.push(line),
            Standing::Keep(line) => resumed.kept.push(line),
            Standing::Look(line, found) => unsure.push((line, found)),
        }
    }
    if unsure.is_empty() {
        return Ok(resumed);
    }
    let looks = futures::stream::iter(unsure)
        .map(|(line, found)| look(job, replaces, line, found))
        .buffered(FOOTERS_IN_FLIGHT);
    let looks: Vec<_> = looks.collect().await;
    for look in looks {
        let (line, decided) = look?;
        resumed.take(job, line, decided)?;
    }
    resumed
        .todo
        .sort_unstable_by(|left, right| left.path.cmp(&right.path));
    Ok(resumed)
}

/// How a shard stands whose place holds `found`, and of which an earlier attempt said `known`.
fn standing(mut line: PlanLine, found: Option<&ObjectMeta>, known: Option<&ShardLine>) -> Standing {
    let Some(found) = found else {
        line.existing = None;
        return Standing::Make(line);
    };
    let is_vouched_for = known.filter(|known| {
        let inputs = known.inputs.as_ref().zip(line.inputs.as_ref());
        known.status == ShardStatus::Done
            && inputs.is_none_or(|(before, now)| before == now)
            && (known.main.size, &known.main.etag) == (line.size, &line.etag)
            && known
                .output
                .as_ref()
                .is_some_and(|made| (made.size, &made.etag) == (found.size, &found.etag))
    });
    if let Some(known) = is_vouched_for {
        return Standing::Keep(known.clone());
    }
    let is_decided = line.existing.as_ref().is_some_and(|existing| {
        existing.action != ExistingAction::Check && existing.etag == found.etag
    });
    if is_decided {
        Standing::Make(line)
    } else {
        Standing::Look(line, found.clone())
    }
}

async fn look(
    job: &Job,
    replaces: &[String],
    line: PlanLine,
    found: ObjectMeta,
) -> Result<(PlanLine, Decided)> {
    // What has come since the plan was made is of this run, and not to be made twice.
    let has_come_since = line
        .existing
        .as_ref()
        .is_none_or(|existing| existing.etag != found.etag);
    let policy = Policy {
        digest: job.digest.clone(),
        skip_existing: job.spec.output.skip_existing || has_come_since,
        replaces: replaces.to_vec(),
    };
    let main = ObjectMeta {
        key: line.path.clone(),
        size: line.size,
        etag: line.etag.clone(),
    };
    let found = Found {
        main,
        output: Some(found),
        recorded: None,
        decision: Decision::CheckFooter,
        inputs: line.inputs.clone(),
    };
    Ok((line, decide(job, found, &policy).await?))
}

impl Resumed {
    /// Takes a shard whose footer was looked at.
    fn take(&mut self, job: &Job, mut line: PlanLine, decided: Decided) -> Result<()> {
        match decided.decision {
            Decision::Skip | Decision::CheckFooter => self.kept.extend(decided.kept),
            Decision::Create => {
                line.existing = None;
                self.todo.push(line);
            }
            Decision::Redo { replace, why } => {
                line.existing = Some(Existing {
                    size: decided.output.map_or(0, |output| output.size),
                    etag: replace,
                    action: why.action(),
                });
                self.todo.push(line);
            }
            // It was there before the run: as on one machine, nothing is made beside it.
            Decision::Conflict { digest } if line.existing.is_some() => {
                return Err(conflict(job, &line.path, digest.as_deref()));
            }
            Decision::Conflict { .. } => {
                let result = Err(ShardError::Conflict {
                    uri: format!("{}{}", job.output.uri(), line.path),
                    reason: "another program wrote it while this run was on; it was left as it is: remove it, and run again".to_owned(),
                });
                self.failed.push(ShardOutcome { line, result });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use storage::ETag;
    use storage::state::shard_lines::{MainShard, OutputShard};

    use super::*;

    fn tag(text: &str) -> ETag {
        ETag(text.into())
    }

    fn planned(existing: Option<(&str, ExistingAction)>) -> PlanLine {
        PlanLine {
            chunk: 3,
            path: "a/3.parquet".to_owned(),
            size: 100,
            etag: tag("main"),
            rows: None,
            inputs: None,
            existing: existing.map(|(etag, action)| Existing {
                size: 20,
                etag: tag(etag),
                action,
            }),
        }
    }

    fn object(etag: &str) -> ObjectMeta {
        ObjectMeta {
            key: "a/3.parquet".to_owned(),
            size: 20,
            etag: tag(etag),
        }
    }

    fn recorded(status: ShardStatus, main: &str, output: &str) -> ShardLine {
        ShardLine {
            path: "a/3.parquet".to_owned(),
            status,
            rows: 10,
            matched: 9,
            nulls: BTreeMap::new(),
            main: MainShard {
                size: 100,
                etag: tag(main),
                footer_sha256: None,
            },
            inputs: None,
            output: Some(OutputShard {
                size: 20,
                etag: tag(output),
                sha256: None,
            }),
            reason: None,
        }
    }

    #[test]
    fn what_is_there_and_right_is_kept() {
        use ExistingAction::{Check, Replace};
        use ShardStatus::{Done, Failed};
        let make = |existing| Standing::Make(planned(existing));
        let look = |existing, etag| Standing::Look(planned(existing), object(etag));
        let done = recorded(Done, "main", "new");
        for (name, existing, there, known, expected) in [
            ("nothing there", None, None, None, make(None)),
            (
                "gone since",
                Some(("old", Replace)),
                None,
                Some(&done),
                make(None),
            ),
            (
                "vouched for",
                None,
                Some("new"),
                Some(&done),
                Standing::Keep(done.clone()),
            ),
            (
                "replaced by an earlier attempt",
                Some(("old", Replace)),
                Some("new"),
                Some(&done),
                Standing::Keep(done.clone()),
            ),
            (
                "not come to yet",
                Some(("old", Replace)),
                Some("old"),
                None,
                make(Some(("old", Replace))),
            ),
            (
                "published, then killed",
                None,
                Some("new"),
                None,
                look(None, "new"),
            ),
            (
                "replaced, then killed",
                Some(("old", Replace)),
                Some("new"),
                None,
                look(Some(("old", Replace)), "new"),
            ),
            (
                "nobody vouched for it",
                Some(("old", Check)),
                Some("old"),
                None,
                look(Some(("old", Check)), "old"),
            ),
            (
                "another version",
                None,
                Some("newer"),
                Some(&done),
                look(None, "newer"),
            ),
            (
                "failed before",
                None,
                Some("new"),
                Some(&recorded(Failed, "main", "new")),
                look(None, "new"),
            ),
            (
                "made from another main shard",
                None,
                Some("new"),
                Some(&recorded(Done, "other", "new")),
                look(None, "new"),
            ),
        ] {
            let there = there.map(object);
            let found = standing(planned(existing), there.as_ref(), known);
            assert_eq!(found, expected, "{name}");
        }
    }
}
