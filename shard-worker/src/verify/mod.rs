//! Proving an output from the files alone: shard set, row counts, order, schema, content.

mod content;
mod report;
mod schema;

use std::sync::Arc;

use futures::StreamExt;
use sha2::{Digest, Sha256};
use storage::ObjectMeta;
use storage::state::diff::Policy;
use storage::state::join::{Diff, Shard};
use storage::state::manifest::Recorded;
use storage::state::merge::OnDamage;
use storage::state::shard_lines::{ShardLine, ShardStatus};
use tokio::sync::Semaphore;

use crate::column_plan::ShardFiles;
use crate::error::{Error, Result, ShardError};
use crate::job::Job;
use crate::keys;
use crate::parquet_file::{ParquetFile, hex};
use crate::provenance::{Provenance, ShardInputs};
use crate::run::batch::{budget, guarded, guarded_future};
use crate::run::room::Room;
use crate::run::state_error;
use crate::shard;

use content::{opening_problems, page_problems};
use schema::{Columns, schema_differences};

pub use report::{Problem, VerifyReport};

/// Shards looked into at once.
const IN_FLIGHT: usize = 32;

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct VerifyOptions {
    /// Shards to look into, spread evenly; `None` is all.
    pub samples: Option<u64>,
    /// Decode every page and compare content hashes.
    pub deep: bool,
    /// Threads.
    pub threads: usize,
    /// Bytes of memory.
    pub memory: u64,
}

struct Pair {
    main: ObjectMeta,
    /// Bytes of the sidecar, which is read as a whole.
    size: u64,
    line: Option<ShardLine>,
}

/// Verifies an output. Every shard gets its verdict; the first problem stops nothing.
pub async fn verify(job: Arc<Job>, options: VerifyOptions) -> Result<VerifyReport> {
    let mut report = VerifyReport {
        version: 1,
        output: job.output_prefix.uri.clone(),
        deep: options.deep,
        ..VerifyReport::default()
    };
    let recorded = Recorded::load(&job.output).await.map_err(state_error)?;
    let total = match options.samples {
        Some(_) => count(&job).await?,
        None => 0,
    };
    let every = options
        .samples
        .map_or(1, |samples| (total / samples.max(1)).max(1));
    let policy = Policy {
        digest: job.digest.clone(),
        skip_existing: true,
        replaces: Vec::new(),
    };
    let lines = recorded.lines(&job.output, OnDamage::Skip);
    let mut diff = Diff::new(
        (job.main.uri(), job.main.list_shards()),
        (job.output.uri(), job.output.list_shards()),
        Some(lines),
        policy,
    );
    let cpu = Arc::new(Semaphore::new(options.threads));
    let room = Room::new(budget(options.memory));
    // All shards have the columns of the first.
    let mut first: Option<(String, Columns)> = None;
    let mut ended = false;
    while !ended {
        let mut window = Vec::new();
        while window.len() < IN_FLIGHT * 4 {
            let Some(found) = diff.next_shard().await.map_err(state_error)? else {
                ended = true;
                break;
            };
            match found {
                Shard::Orphan(orphan) => report.problems.push(Problem {
                    path: orphan.key,
                    kind: "orphan",
                    detail: "there is no main shard of this path".to_owned(),
                }),
                Shard::Planned(planned) => {
                    let planned = *planned;
                    let number = report.shards;
                    report.shards += 1;
                    let line = planned.recorded.map(|recorded| recorded.line);
                    match planned.output {
                        None => {
                            let reason = line
                                .and_then(|line| line.reason)
                                .map(|reason| format!("; the run said: {reason}"))
                                .unwrap_or_default();
                            report.problems.push(Problem {
                                path: planned.main.key,
                                kind: "missing",
                                detail: format!("there is no sidecar shard{reason}"),
                            });
                        }
                        Some(output) if number.is_multiple_of(every) => window.push(Pair {
                            main: planned.main,
                            size: output.size,
                            line,
                        }),
                        Some(_) => {}
                    }
                }
            }
        }
        let verdicts = futures::stream::iter(window)
            .map(|pair| look_into(&job, pair, options, (&room, cpu.clone())))
            .buffered(IN_FLIGHT);
        let verdicts: Vec<Result<Verdict>> = verdicts.collect().await;
        for verdict in verdicts {
            let verdict = verdict?;
            report.looked_into += 1;
            report.rows += verdict.rows;
            report.without_hash += u64::from(verdict.without_hash);
            report.problems.extend(verdict.problems);
            match (&first, verdict.columns) {
                (None, Some(columns)) => first = Some((verdict.path, columns)),
                (Some((path, first)), Some(columns)) => {
                    let differences = columns.differences(first, path);
                    let problems = differences.into_iter().map(|detail| Problem {
                        path: verdict.path.clone(),
                        kind: "schema",
                        detail,
                    });
                    report.problems.extend(problems);
                }
                (_, None) => {}
            }
        }
    }
    if report.shards == 0 {
        let reason = format!("{} holds no shard: nothing to verify", job.main.uri());
        return Err(Error::Usage(reason));
    }
    report
        .problems
        .sort_by(|left, right| left.path.cmp(&right.path));
    Ok(report)
}

async fn count(job: &Job) -> Result<u64> {
    let mut shards = 0;
    let mut pages = job.main.list_shards();
    while let Some(page) = pages.next().await {
        shards += page?.shards.len() as u64;
    }
    Ok(shards)
}

#[derive(Default)]
struct Verdict {
    path: String,
    columns: Option<Columns>,
    rows: u64,
    without_hash: bool,
    problems: Vec<Problem>,
}

async fn look_into(
    job: &Arc<Job>,
    pair: Pair,
    options: VerifyOptions,
    (room, cpu): (&Room, Arc<Semaphore>),
) -> Result<Verdict> {
    let path = pair.main.key.clone();
    // Until it was looked into.
    let _taken = room.take(pair.size).await;
    match guarded_future(&path, gather(job, pair)).await {
        Ok(Gathered {
            files,
            side,
            whole,
            line,
        }) => {
            let Ok(_permit) = cpu.acquire_owned().await else {
                return Err(Error::Usage("verification was aborted".to_owned()));
            };
            let job = job.clone();
            let uri = side.uri.clone();
            let task = tokio::task::spawn_blocking(move || {
                guarded(&uri, || {
                    let mut verdict = Verdict::default();
                    examine(
                        &job,
                        &files,
                        &side,
                        &whole,
                        line.as_ref(),
                        options.deep,
                        &mut verdict,
                    );
                    Ok(verdict)
                })
            });
            let verdict = task
                .await
                .map_err(|error| Error::Usage(format!("verification was aborted: {error}")))?;
            Ok(verdict.unwrap_or_else(|error| unreadable(&path, &error)))
        }
        Err(ShardError::Storage(error)) if error.is_refused_altogether() => {
            Err(Error::Storage(error))
        }
        Err(error) => Ok(unreadable(&path, &error)),
    }
}

fn unreadable(path: &str, error: &ShardError) -> Verdict {
    let problem = Problem {
        path: path.to_owned(),
        kind: "unreadable",
        detail: error.to_string(),
    };
    Verdict {
        problems: vec![problem],
        ..Verdict::default()
    }
}

struct Gathered {
    files: ShardFiles,
    side: ParquetFile,
    whole: String,
    line: Option<ShardLine>,
}

/// Reads what the checks need: footers and keys of main and siblings, and the sidecar.
async fn gather(job: &Job, pair: Pair) -> Result<Gathered, ShardError> {
    let Pair { main, line, .. } = pair;
    let key = main.key.clone();
    let mut main = ParquetFile::open(&*job.main, main, &job.hints[0]).await?;
    let (leaf, _) = keys::kind_of(&main, &job.key)?;
    main.fetch(&*job.main, &[leaf], &job.hints[0]).await?;
    let mut siblings = Vec::with_capacity(job.siblings.len());
    for (sibling, hint) in job.siblings.iter().zip(&job.hints[1..]) {
        siblings.push(match sibling.store.head(&key).await {
            Ok(meta) => Some(ParquetFile::open(&*sibling.store, meta, hint).await?),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        });
    }
    let uri = format!("{}{key}", job.output.uri());
    // Whatever the footer says: only its bytes tell whether a reader can open it.
    let (meta, bytes) = job.output.read(&key).await?;
    let whole = hex(&Sha256::digest(&bytes));
    let side = ParquetFile::from_bytes(&uri, meta, bytes)?;
    Ok(Gathered {
        files: ShardFiles { main, siblings },
        side,
        whole,
        line,
    })
}

fn examine(
    job: &Job,
    files: &ShardFiles,
    side: &ParquetFile,
    whole: &str,
    line: Option<&ShardLine>,
    deep: bool,
    verdict: &mut Verdict,
) {
    let path = files.main.meta.key.clone();
    let mut say = |kind: &'static str, detail: String| {
        verdict.problems.push(Problem {
            path: path.clone(),
            kind,
            detail,
        })
    };
    if side.num_rows() != files.main.num_rows() {
        say(
            "rows",
            format!(
                "{} rows, main has {}",
                side.num_rows(),
                files.main.num_rows()
            ),
        );
    } else {
        match order(job, &files.main, side) {
            Ok(None) => {}
            Ok(Some(detail)) => say("order", detail),
            Err(error) => say("unreadable", error.to_string()),
        }
    }
    let mut columns = None;
    match shard::plan(job, files) {
        Ok(plan) => {
            let differences = schema_differences(&plan, files, side);
            // What is not as planned is told once.
            if differences.is_empty() {
                columns = Some(Columns::of(&plan, side));
            }
            for detail in differences {
                say("schema", detail);
            }
        }
        Err(error) => say(
            "schema",
            format!("main and side inputs no longer fit the manifest: {error}"),
        ),
    }
    match Provenance::of(side) {
        None => say(
            "provenance",
            "the footer does not say which pipeline made it".to_owned(),
        ),
        Some(known) if known.digest != job.digest => say(
            "provenance",
            format!(
                "made by the pipeline with digest {}, this one is {}",
                known.digest, job.digest
            ),
        ),
        Some(known) if !known.written_by_us => say(
            "provenance",
            "another tool has rewritten the file".to_owned(),
        ),
        Some(known) if known.main_footer_sha256 != files.main.footer_sha256 => say(
            "provenance",
            "main has changed since it was made".to_owned(),
        ),
        Some(known) => {
            let now = ShardInputs::of(job, &files.siblings);
            let difference = known.inputs.and_then(|before| before.difference(&now));
            if let Some(difference) = difference {
                say(
                    "side_input",
                    format!(
                        "a side input has changed since it was made ({difference}); run again to make it from the new one"
                    ),
                );
            }
        }
    }
    let recorded = line
        .filter(|line| line.status == ShardStatus::Done)
        .and_then(|line| line.output.as_ref())
        .and_then(|made| made.sha256.as_ref());
    let mut without_hash = false;
    match recorded {
        Some(recorded) if recorded != whole => say(
            "content",
            format!("SHA-256 is {whole}, the manifest says {recorded}"),
        ),
        Some(_) => {}
        None => without_hash = true,
    }
    if deep {
        for detail in page_problems(side) {
            say("content", detail);
        }
    } else {
        for detail in opening_problems(side) {
            say("unreadable", detail);
        }
    }
    verdict.path = path.clone();
    verdict.columns = columns;
    verdict.without_hash = without_hash;
    verdict.rows = files.main.num_rows() as u64;
}

/// Compares keys row by row. Here null equals null: both files are the same dataset's.
fn order(job: &Job, main: &ParquetFile, side: &ParquetFile) -> Result<Option<String>, ShardError> {
    let main_keys = keys::read(main, &job.key)?;
    let side_keys = keys::read(side, &job.key)?;
    let differs = (0..main_keys.len().min(side_keys.len()))
        .find(|&row| main_keys.get(row) != side_keys.get(row));
    Ok(differs.map(|row| {
        let (side, main) = (
            keys::show(side_keys.get(row), side_keys.kind),
            keys::show(main_keys.get(row), main_keys.kind),
        );
        format!("row {row}: key is {side}, main's is {main}")
    }))
}
