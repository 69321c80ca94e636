//! Proving an output from the files alone: shard set, row counts, order, schema, content.

mod report;

use std::sync::Arc;

use futures::StreamExt;
use parquet::column::page::PageReader;
use sha2::{Digest, Sha256};
use storage::ObjectMeta;
use storage::state::diff::Policy;
use storage::state::join::{Diff, Shard};
use storage::state::manifest::Recorded;
use storage::state::merge::OnDamage;
use storage::state::shard_lines::{ShardLine, ShardStatus};
use tokio::sync::Semaphore;

use crate::column_plan::{ColumnPlan, ShardFiles, Value, natural_type, passes_unchanged};
use crate::encode::parquet_type;
use crate::error::{Error, Result, ShardError};
use crate::evaluate::decode;
use crate::job::Job;
use crate::keys;
use crate::leaf::page_reader;
use crate::parquet_file::{ParquetFile, hex};
use crate::provenance::Provenance;
use crate::run::batch::{guarded, guarded_future};
use crate::run::state_error;
use crate::shard;

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
}

struct Pair {
    main: ObjectMeta,
    output: ObjectMeta,
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
                            output,
                            line,
                        }),
                        Some(_) => {}
                    }
                }
            }
        }
        let verdicts = futures::stream::iter(window)
            .map(|pair| look_into(&job, pair, options, cpu.clone()))
            .buffered(IN_FLIGHT);
        let verdicts: Vec<Result<Verdict>> = verdicts.collect().await;
        for verdict in verdicts {
            let verdict = verdict?;
            report.looked_into += 1;
            report.rows += verdict.rows;
            report.without_hash += u64::from(verdict.without_hash);
            report.problems.extend(verdict.problems);
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
    rows: u64,
    without_hash: bool,
    problems: Vec<Problem>,
}

async fn look_into(
    job: &Arc<Job>,
    pair: Pair,
    options: VerifyOptions,
    cpu: Arc<Semaphore>,
) -> Result<Verdict> {
    let path = pair.main.key.clone();
    match guarded_future(&path, gather(job, pair, options.deep)).await {
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
                        whole,
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
    whole: Option<String>,
    line: Option<ShardLine>,
}

/// Reads what the checks need: footers and keys of main and siblings, and of the sidecar its
/// keys, or all of it.
async fn gather(job: &Job, pair: Pair, deep: bool) -> Result<Gathered, ShardError> {
    let Pair { main, output, line } = pair;
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
    let has_hash = line
        .as_ref()
        .and_then(|line| line.output.as_ref())
        .is_some_and(|made| made.sha256.is_some());
    let (side, whole) = if deep || has_hash {
        let (meta, bytes) = job.output.read(&key).await?;
        let sha256 = hex(&Sha256::digest(&bytes));
        (ParquetFile::from_bytes(&uri, meta, bytes)?, Some(sha256))
    } else {
        let mut side = ParquetFile::open(&*job.output, output, &job.hints[0]).await?;
        let (leaf, _) = keys::kind_of(&side, &job.key)?;
        side.fetch(&*job.output, &[leaf], &job.hints[0]).await?;
        (side, None)
    };
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
    whole: Option<String>,
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
    match shard::plan(job, files) {
        Ok(plan) => {
            for detail in schema_differences(&plan, files, side) {
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
        Some(_) => {}
    }
    let recorded = line
        .filter(|line| line.status == ShardStatus::Done)
        .and_then(|line| line.output.as_ref())
        .and_then(|made| made.sha256.as_ref());
    let mut without_hash = false;
    match (recorded, &whole) {
        (Some(recorded), Some(found)) if recorded != found => say(
            "content",
            format!("SHA-256 is {found}, the manifest says {recorded}"),
        ),
        (None, _) => without_hash = true,
        _ => {}
    }
    if deep {
        for detail in page_problems(side) {
            say("content", detail);
        }
    }
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

/// Where the physical schema is not the one that the manifest and main lead to.
fn schema_differences(plan: &ColumnPlan, files: &ShardFiles, side: &ParquetFile) -> Vec<String> {
    let mut differences = Vec::new();
    let expected: Vec<&str> = plan
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let found: Vec<&str> = side.roots().iter().map(|field| field.name()).collect();
    if expected != found {
        differences.push(format!(
            "columns are {}, expected {}",
            found.join(", "),
            expected.join(", ")
        ));
        return differences;
    }
    for (column, found) in plan.columns.iter().zip(side.roots()) {
        let expected = match (&column.value, &column.declared) {
            (Value::File { file, root }, declared) => match files.get(*file) {
                Some(file) if passes_unchanged(file, *root, declared.as_ref()).unwrap_or(false) => {
                    Some(file.roots()[*root].clone())
                }
                _ => declared.as_ref().and_then(|field| parquet_type(field).ok()),
            },
            (_, Some(declared)) => parquet_type(declared).ok(),
            (_, None) => None,
        };
        if expected.as_ref().is_some_and(|expected| expected != found) {
            differences.push(format!(
                "column {:?} has another physical type than expected",
                column.name
            ));
        }
    }
    differences
}

/// Reads every page (CRCs are checked where pages have them) and decodes every column.
fn page_problems(side: &ParquetFile) -> Vec<String> {
    let mut problems = Vec::new();
    for (group, _) in side.groups() {
        let row_group = side.metadata.row_group(group);
        for leaf in 0..row_group.num_columns() {
            let read = page_reader(side.bytes.clone(), row_group, leaf).and_then(|mut pages| {
                while pages.get_next_page()?.is_some() {}
                Ok(())
            });
            if let Err(error) = read {
                problems.push(format!(
                    "row group {group}, column {}: {error}",
                    row_group.column(leaf).column_path()
                ));
            }
        }
    }
    if problems.is_empty() {
        for root in 0..side.roots().len() {
            if natural_type(side, root).is_ok()
                && let Err(error) = decode(side, root)
            {
                problems.push(error.to_string());
            }
        }
    }
    problems
}
