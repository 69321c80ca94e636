//! Verifying and sealing: the output is listed against the plan and what workers recorded, a
//! few footers are looked at, and then manifest and sentinel are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use rules::model::{GivenUp, Item, SealFacts, SealTotals};
use storage::state::layout;
use storage::state::manifest::{Completeness, Manifest, ManifestPart, Recorded, Seal, Totals};
use storage::state::plan::PlanSummary;
use storage::state::retention::remove_expired;
use storage::state::sentinel::Sentinel;
use storage::state::shard_lines::ShardLine;
use storage::{Error, ObjectMeta, Store};
use time::OffsetDateTime;

use super::book::NO_REASON;
use super::failures::FailureReport;
use super::footers::{Look, Reservoir, look_at};
use super::lock;
use super::session::Session;
use super::trouble::{Failed, Remedy};
use super::walk::{Verdict, Walk};

const WHAT: &str = "verify and seal the output";
/// Shards of the output whose footers are looked at.
const SAMPLES: usize = 16;
/// Shards between two looks at the lock and two notes of how far it is.
const STEP: u64 = 10_000;
/// Objects that wait for a look of their own, at most.
const LOOKS_AT_ONCE: usize = 64;

/// Verifies and seals the output of a session's run. What `given_up` names and has left nothing
/// else behind has failed.
pub(super) async fn seal(session: Arc<Session>, given_up: Vec<GivenUp>) {
    let given_up = reasons(&session, &given_up);
    loop {
        let attempt = || guarded(&session, &given_up).boxed();
        match session.insist(WHAT, attempt).await {
            Ok(facts) => {
                session.update(|known| known.seal = facts);
                return;
            }
            Err(error) => {
                // A person has to act, and the run goes on from here when they have.
                debug_assert_eq!(error.remedy(), Remedy::Never);
                tracing::warn!(job = %session.job.name, run = %session.run, %error, "can't {WHAT}");
                session.trouble(WHAT, Some(format!("can't {WHAT}: {error}")));
                tokio::time::sleep(session.pace.longest_pause).await;
            }
        }
    }
}

/// One of the few plans and seals that are made at a time.
async fn guarded(
    session: &Session,
    given_up: &BTreeMap<Item, String>,
) -> Result<SealFacts, Failed> {
    let _leave = session.budget.heavy().await;
    attempt(session, given_up).await
}

/// Why each item was given up, in the words of its own last worker if it had any.
fn reasons(session: &Session, given_up: &[GivenUp]) -> BTreeMap<Item, String> {
    let book = lock(&session.book);
    let items = given_up.iter().flat_map(|all| {
        let shared = all.reason.as_deref().unwrap_or(NO_REASON);
        all.items.iter().map(move |item| (*item, shared))
    });
    items
        .map(|(item, shared)| (item, book.reason_of(item.0).unwrap_or(shared).to_owned()))
        .collect()
}

async fn attempt(
    session: &Session,
    given_up: &BTreeMap<Item, String>,
) -> Result<SealFacts, Failed> {
    let output = session.output()?;
    let main = session.stores().open(&session.hold.main)?;
    let Some(plan) = PlanSummary::read(&*output, &session.run).await? else {
        return Err(Failed::Refused {
            reason: "RunUnreadable",
            message: format!("run {} has no plan.json any more", session.run),
        });
    };
    let recorded = Recorded::load(&output).await?;
    let mut tally = Tally {
        session,
        main: &*main,
        output: &*output,
        kept: plan.kept.unwrap_or_default(),
        made: Totals::default(),
        failures: FailureReport::new(&session.run, &session.hold.digest),
        given_up,
        missing: BTreeSet::new(),
        missing_shards: 0,
        first_missing: None,
        sample: Reservoir::new(SAMPLES),
        others: Vec::new(),
        gone: Vec::new(),
    };
    let mut walk = Walk::new(&output, &plan, &recorded);
    let mut checked = 0_u64;
    while let Some((path, found)) = walk.next().await? {
        let verdict = found.judge(&session.run, &session.hold.digest);
        tally.add(path, verdict).await?;
        checked += 1;
        if checked.is_multiple_of(STEP) {
            session.update(|facts| facts.seal = SealFacts::Going { checked });
            session.fence()?.check().await?;
        }
    }
    drop(walk);
    tally.look_at_others().await?;
    tally.look_at_gone().await?;
    if !tally.missing.is_empty() {
        return Ok(tally.missing());
    }
    tally.look_at_sample().await?;
    tally.write(main.uri(), &recorded).await
}

/// What was found so far.
struct Tally<'a> {
    session: &'a Session,
    main: &'a dyn Store,
    output: &'a dyn Store,
    kept: Totals,
    made: Totals,
    failures: FailureReport,
    /// Items that are not tried again, and why.
    given_up: &'a BTreeMap<Item, String>,
    /// Items to be done again.
    missing: BTreeSet<Item>,
    missing_shards: u64,
    first_missing: Option<String>,
    /// Some of the shards that are there.
    sample: Reservoir<(ObjectMeta, ShardLine)>,
    /// Shards of another version than recorded, and their chunks.
    others: Vec<(ObjectMeta, ShardLine, u64)>,
    /// Shards that were kept and may have gone.
    gone: Vec<ShardLine>,
}

impl Tally<'_> {
    async fn add(&mut self, path: String, verdict: Verdict) -> Result<(), Failed> {
        match verdict {
            Verdict::Whole(object, line) => self.add_whole(object, line),
            Verdict::Other(object, line, chunk) => {
                self.others.push((object, line, chunk));
                if self.others.len() >= LOOKS_AT_ONCE {
                    self.look_at_others().await?;
                }
            }
            Verdict::Failed(reason) => self.failures.add(path, reason),
            Verdict::Missing(chunk, words) => self.add_missing(path, chunk, words),
            Verdict::Unrecorded(chunk, words) => match self.why_given_up(chunk) {
                Some(reason) => {
                    let way_out = "it was published all the same; another run takes it over";
                    self.failures.add(path, format!("{reason}; {way_out}"));
                }
                None => self.add_missing(path, chunk, words),
            },
            Verdict::Gone(line) if self.kept.shards > 0 => {
                self.gone.push(line);
                if self.gone.len() >= LOOKS_AT_ONCE {
                    self.look_at_gone().await?;
                }
            }
            Verdict::Gone(_) | Verdict::Fine => {}
        }
        Ok(())
    }

    fn add_whole(&mut self, object: ObjectMeta, line: ShardLine) {
        self.made.shards += 1;
        self.made.rows += line.rows;
        self.made.matched += line.matched;
        self.made.bytes += object.size;
        self.sample.offer(|| (object, line));
    }

    /// Why the item of a chunk is not tried again; `None` if it is.
    fn why_given_up(&self, chunk: u64) -> Option<String> {
        let item = lock(&self.session.book).item_of(chunk)?;
        self.given_up.get(&item).cloned()
    }

    fn add_missing(&mut self, path: String, chunk: u64, words: String) {
        if let Some(reason) = self.why_given_up(chunk) {
            return self.failures.add(path, reason);
        }
        let item = lock(&self.session.book).item_of(chunk);
        self.missing.insert(item.unwrap_or((chunk, chunk + 1)));
        self.missing_shards += 1;
        self.first_missing.get_or_insert(words);
    }

    /// Shards of another version than recorded are right if they are ours: the same bytes may
    /// have been published twice.
    async fn look_at_others(&mut self) -> Result<(), Failed> {
        let others = std::mem::take(&mut self.others);
        let objects: Vec<ObjectMeta> = others.iter().map(|(object, ..)| object.clone()).collect();
        let looks = look_at(self.output, &objects).await?;
        for ((object, line, chunk), look) in others.into_iter().zip(looks) {
            match self.fault(&line, &look) {
                None => self.add_whole(object, line),
                Some(fault) => {
                    let words = format!("{} is another than was reported: {fault}", line.path);
                    self.add_missing(line.path, chunk, words);
                }
            }
        }
        Ok(())
    }

    /// Shards that are not there any more were kept if their main shard still is what it was.
    async fn look_at_gone(&mut self) -> Result<(), Failed> {
        let main = self.main;
        let gone = std::mem::take(&mut self.gone);
        let paths: Vec<String> = gone.iter().map(|line| line.path.clone()).collect();
        let looks: Vec<Result<ObjectMeta, Error>> = stream::iter(paths)
            .map(|path| async move { main.head(&path).await })
            .buffered(LOOKS_AT_ONCE)
            .collect()
            .await;
        for (line, look) in gone.into_iter().zip(looks) {
            let has_main = match look {
                Ok(object) => object.etag == line.main.etag && object.size == line.main.size,
                Err(error) if error.is_not_found() => false,
                Err(error) => return Err(error.into()),
            };
            if !has_main {
                continue;
            }
            self.kept.shards = self.kept.shards.saturating_sub(1);
            self.kept.rows = self.kept.rows.saturating_sub(line.rows);
            self.kept.matched = self.kept.matched.saturating_sub(line.matched);
            let size = line.output.as_ref().map_or(0, |output| output.size);
            self.kept.bytes = self.kept.bytes.saturating_sub(size);
            let reason = "it was in place when the run began, and was removed or changed since: \
                          run again to make it";
            self.failures.add(line.path, reason.to_owned());
        }
        Ok(())
    }

    /// Looks into a few of the shards that are there and have the recorded version.
    async fn look_at_sample(&mut self) -> Result<(), Failed> {
        let sample = std::mem::replace(&mut self.sample, Reservoir::new(0)).into_sample();
        let objects: Vec<ObjectMeta> = sample.iter().map(|(object, _)| object.clone()).collect();
        let looks = look_at(self.output, &objects).await?;
        for ((object, line), look) in sample.into_iter().zip(looks) {
            let Some(fault) = self.fault(&line, &look) else {
                continue;
            };
            self.made.shards -= 1;
            self.made.rows -= line.rows;
            self.made.matched -= line.matched;
            self.made.bytes -= object.size;
            let reason = format!("{fault}; delete the shard and run again to make it");
            self.failures.add(line.path, reason);
        }
        Ok(())
    }

    /// What is wrong with a shard, by its footer.
    fn fault(&self, line: &ShardLine, look: &Look) -> Option<String> {
        match look {
            Look::Read(footer) if footer.digest.as_ref() != Some(&self.session.hold.digest) => {
                Some("its footer does not say that this pipeline made it".to_owned())
            }
            Look::Read(footer) if footer.rows != line.rows => Some(format!(
                "it has {} rows, reported were {}",
                footer.rows, line.rows
            )),
            Look::Read(_) => None,
            Look::Refused(words) => {
                tracing::warn!(path = %line.path, "the footer of a shard can't be looked at: {words}");
                None
            }
            Look::Unreadable(words) => Some(words.clone()),
        }
    }

    fn missing(self) -> SealFacts {
        let message = format!(
            "{} shards of {} work items have to be done again; the first: {}",
            self.missing_shards,
            self.missing.len(),
            self.first_missing.unwrap_or_default()
        );
        SealFacts::Missing {
            items: self.missing.into_iter().collect(),
            message,
        }
    }

    async fn write(self, main: &str, recorded: &Recorded) -> Result<SealFacts, Failed> {
        let Self {
            session,
            kept,
            made,
            failures,
            ..
        } = self;
        let (run, digest) = (&session.run, &session.hold.digest);
        let output = session.output()?;
        let failed = failures.count();
        let is_whole = failed == 0;
        let totals = Totals {
            shards: kept.shards + made.shards,
            failed,
            rows: kept.rows + made.rows,
            matched: kept.matched + made.matched,
            bytes: kept.bytes + made.bytes,
        };
        session.fence()?.check().await?;
        let key = layout::failures(run);
        let first = failures.first().to_vec();
        if is_whole {
            // An earlier look at the same run may have found failures.
            output.delete(&key, None).await?;
        } else {
            failures.write(&*output, &key).await?;
            Sentinel::remove(&*output).await?;
        }
        let ours = recorded.parts.iter().filter(|part| part.run == *run);
        let seal = Seal {
            main: main.to_owned(),
            digest: digest.clone(),
            run: run.clone(),
            state: if is_whole {
                Completeness::Complete
            } else {
                Completeness::Incomplete
            },
            totals,
            parts: ours.map(|part| ManifestPart::clone(part)).collect(),
        };
        let now = OffsetDateTime::now_utc();
        let sealed = Manifest::seal(&output, recorded, seal, now).await?;
        if is_whole {
            session.fence()?.check().await?;
            let (run, digest) = (run.clone(), digest.clone());
            let now = OffsetDateTime::now_utc();
            let sentinel = Sentinel::new(
                run,
                digest,
                totals.shards,
                totals.rows,
                now,
                sealed.sha256.clone(),
            );
            sentinel.write(&*output).await?;
        }
        let now = OffsetDateTime::now_utc();
        match remove_expired(&*output, &sealed.manifest, now).await {
            Ok(0) => {}
            Ok(files) => tracing::info!(%run, files, "removed what old runs had left"),
            Err(error) => tracing::warn!(%run, %error, "what old runs left can't be removed"),
        }
        Ok(SealFacts::Sealed(SealTotals {
            shards: totals.shards,
            failed,
            rows: totals.rows,
            matched: totals.matched,
            failure_report: (!is_whole).then(|| format!("{}{key}", output.uri())),
            failures: first,
        }))
    }
}
