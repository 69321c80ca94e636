//! How much of an output is filled: match rates per source and path prefix, values per column.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use futures::StreamExt;
use serde::Serialize;
use storage::ObjectMeta;
use storage::state::report::{ColumnCounts, Failure, RowErrors, RowExample, SourceCounts};
use tokio::sync::Semaphore;

use crate::arrow_types::{count_values, is_missing};
use crate::decode::Decoder;
use crate::error::{Error, Result, ShardError};
use crate::filters::table::ERRORS;
use crate::job::Job;
use crate::keys;
use crate::parquet_file::ParquetFile;
use crate::run::batch::{budget, guarded, guarded_future};
use crate::run::report::write_row_errors;
use crate::run::room::Room;
use crate::unfit::Unfit;

/// Shards read at once.
const IN_FLIGHT: usize = 16;
/// Depths of path prefixes that are counted side by side; the deepest that is still readable
/// is shown.
const DEPTHS: usize = 6;
/// A depth with more prefixes than this is given up.
const MOST_PREFIXES: usize = 4096;
/// A table with more lines than this is not readable.
const READABLE: usize = 40;

/// How it is done.
#[derive(Debug, Clone, Copy)]
pub struct AuditOptions {
    /// Threads.
    pub threads: usize,
    /// Bytes of memory.
    pub memory: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AuditReport {
    /// Version of this format.
    pub version: u32,
    /// Output prefix.
    pub output: String,
    /// Sidecar shards read.
    pub shards: u64,
    /// Rows.
    pub rows: u64,
    /// Rows for which a joined column has a value; without a join, any of the sidecar's own.
    pub matched: u64,
    /// Rows without a key.
    pub null_keys: u64,
    /// Per source; the name of rows without one is empty.
    pub sources: BTreeMap<String, SourceCounts>,
    /// Per path prefix of the key.
    pub prefixes: BTreeMap<String, SourceCounts>,
    /// Prefixes of which no row matched.
    pub unmatched_prefixes: Vec<String>,
    /// Per column of the sidecar's own.
    pub columns: BTreeMap<String, ColumnCounts>,
    /// Rows whose image could not be judged, per reason, with the first of them; by the column
    /// `filter_errors`, if the job declares it.
    pub row_errors: BTreeMap<String, RowErrors>,
    /// Shards that could not be read.
    pub failures: Vec<Failure>,
}

#[derive(Default)]
struct Part {
    rows: u64,
    matched: u64,
    null_keys: u64,
    sources: BTreeMap<String, SourceCounts>,
    prefixes: Vec<HashMap<String, SourceCounts>>,
    columns: BTreeMap<String, ColumnCounts>,
    row_errors: BTreeMap<String, RowErrors>,
}

/// Reads the keys and own columns of every sidecar shard.
pub async fn audit(job: Arc<Job>, options: AuditOptions) -> Result<AuditReport> {
    let mut report = AuditReport {
        version: 1,
        output: job.output_prefix.uri.clone(),
        ..AuditReport::default()
    };
    let cpu = Arc::new(Semaphore::new(options.threads));
    let room = Room::new(budget(options.memory));
    let mut depths: Vec<Option<HashMap<String, SourceCounts>>> = vec![Some(HashMap::new()); DEPTHS];
    let mut is_empty = true;
    let mut pages = job.output.list_shards();
    while let Some(page) = pages.next().await {
        let page = page?;
        is_empty &= page.shards.is_empty();
        let shards = futures::stream::iter(page.shards).map(|meta| {
            let (job, cpu, room) = (job.clone(), cpu.clone(), room.clone());
            async move {
                let path = meta.key.clone();
                let part = guarded_future(&path, read(&job, meta, &room, cpu)).await;
                (path, part)
            }
        });
        let mut parts = shards.buffered(IN_FLIGHT);
        while let Some((path, part)) = parts.next().await {
            match part {
                Ok(part) => merge(&mut report, &mut depths, part),
                Err(ShardError::Storage(error)) if error.is_refused_altogether() => {
                    return Err(Error::Storage(error));
                }
                Err(error) => report.failures.push(Failure {
                    path,
                    reason: error.to_string(),
                }),
            }
        }
    }
    if is_empty {
        let reason = format!("{} holds no shard: nothing to audit", job.output.uri());
        return Err(Error::Usage(reason));
    }
    let readable = depths
        .into_iter()
        .flatten()
        .filter(|prefixes| prefixes.len() <= READABLE)
        .max_by_key(HashMap::len);
    report.prefixes = readable.unwrap_or_default().into_iter().collect();
    report.unmatched_prefixes = report
        .prefixes
        .iter()
        .filter(|(_, counts)| counts.matched == 0)
        .map(|(prefix, _)| prefix.clone())
        .collect();
    Ok(report)
}

fn merge(
    report: &mut AuditReport,
    depths: &mut [Option<HashMap<String, SourceCounts>>],
    part: Part,
) {
    report.shards += 1;
    report.rows += part.rows;
    report.matched += part.matched;
    report.null_keys += part.null_keys;
    for (name, counts) in part.sources {
        report.sources.entry(name).or_default().add(counts);
    }
    for (name, counts) in part.columns {
        report.columns.entry(name).or_default().add(counts);
    }
    for (reason, errors) in part.row_errors {
        let into = report.row_errors.entry(reason).or_default();
        into.add(errors.rows, errors.first);
    }
    for (depth, prefixes) in depths.iter_mut().zip(part.prefixes) {
        let Some(all) = depth else { continue };
        for (prefix, counts) in prefixes {
            all.entry(prefix).or_default().add(counts);
        }
        if all.len() > MOST_PREFIXES {
            *depth = None;
        }
    }
}

async fn read(
    job: &Arc<Job>,
    meta: ObjectMeta,
    room: &Room,
    cpu: Arc<Semaphore>,
) -> Result<Part, ShardError> {
    let mut file = ParquetFile::open(&*job.output, meta, &job.hints[0]).await?;
    let (key_leaf, _) = keys::kind_of(&file, &job.key)?;
    let mut leaves = vec![key_leaf];
    for field in &job.declared {
        if let Some(root) = file.root(field.name()) {
            leaves.extend(file.leaves_of(root));
        }
    }
    // Until it was counted.
    let _taken = room.take(file.size_of(&leaves)).await;
    file.fetch(&*job.output, &leaves, &job.hints[0]).await?;
    let Ok(_permit) = cpu.acquire_owned().await else {
        return Err(ShardError::Stopped);
    };
    let (job, uri) = (job.clone(), file.uri.clone());
    let task = tokio::task::spawn_blocking(move || guarded(&uri, || count(&job, &file)));
    task.await.unwrap_or(Err(ShardError::Stopped))
}

fn count(job: &Job, file: &ParquetFile) -> Result<Part, ShardError> {
    let keys = keys::read(file, &job.key)?;
    let rows = keys.len();
    let mut part = Part {
        rows: rows as u64,
        null_keys: keys.null_count() as u64,
        prefixes: vec![HashMap::new(); DEPTHS],
        ..Part::default()
    };
    let mut matched = vec![false; rows];
    let deciding: Vec<&str> = job
        .match_lookups()
        .iter()
        .flat_map(|&lookup| job.lookups[lookup].columns())
        .map(|field| field.name().as_str())
        .collect();
    let has_reasons = job.declared.iter().any(|field| field.name() == ERRORS);
    let only_measures =
        has_reasons && !job.filters.is_empty() && !job.has_lookups() && job.siblings.is_empty();
    for field in &job.declared {
        let Some(root) = file.root(field.name()) else {
            continue;
        };
        let counts = part.columns.entry(field.name().clone()).or_default();
        let mut start = 0;
        let mut values = Decoder::open(file, root)?;
        while let Some(array) = values.next(&mut Unfit::default())? {
            let (populated, errors) = count_values(&array);
            counts.populated += populated;
            counts.null += array.len() as u64 - populated;
            counts.error += errors;
            if field.name() == ERRORS && !job.filters.is_empty() {
                count_reasons(&array, &file.meta.key, start, &mut part.row_errors);
            }
            // The run counts rows whose image could be judged: those without a reason.
            let by_reason = only_measures && field.name() == ERRORS;
            let decides = by_reason
                || !only_measures
                    && (deciding.is_empty() || deciding.contains(&field.name().as_str()));
            for row in 0..array.len() {
                if decides && !matched[start + row] {
                    matched[start + row] = is_missing(&array, row) == by_reason;
                }
            }
            start += array.len();
        }
    }
    for (row, &is_matched) in matched.iter().enumerate() {
        let counts = SourceCounts {
            rows: 1,
            matched: u64::from(is_matched),
        };
        part.matched += counts.matched;
        let Some(key) = keys.get(row) else { continue };
        if !job.sources.is_empty() {
            let source = job
                .sources
                .infer(key)
                .map(|group| job.sources.names()[usize::from(group)].clone());
            let source = part.sources.entry(source.unwrap_or_default());
            source.or_default().add(counts);
        }
        let key = String::from_utf8_lossy(key);
        for (depth, prefixes) in part.prefixes.iter_mut().enumerate() {
            let prefix = path_prefix(&key, depth + 1).to_owned();
            prefixes.entry(prefix).or_default().add(counts);
        }
    }
    Ok(part)
}

/// Counts the reasons that a column gives for rows without values.
fn count_reasons(
    array: &dyn Array,
    path: &str,
    start: usize,
    into: &mut BTreeMap<String, RowErrors>,
) {
    let reasons = array.as_string_opt::<i64>().into_iter().flatten();
    for (row, reason) in reasons.enumerate() {
        if let Some(reason) = reason {
            let example = RowExample {
                path: path.to_owned(),
                row: (start + row) as u64,
            };
            into.entry(reason.to_owned()).or_default().add(1, [example]);
        }
    }
}

/// The first `depth` folders of a path, a URI's scheme and host counting as one. A path with
/// fewer folders gives all that it has.
fn path_prefix(path: &str, depth: usize) -> &str {
    let body = path.find("://").map_or(0, |at| at + 3);
    let mut end = 0;
    for (folder, (at, _)) in path[body..].match_indices('/').enumerate() {
        if folder == depth {
            break;
        }
        end = body + at + 1;
    }
    &path[..end]
}

impl fmt::Display for AuditReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent =
            |counts: &SourceCounts| 100.0 * counts.matched as f64 / counts.rows.max(1) as f64;
        writeln!(formatter, "output  {}", self.output)?;
        let all = SourceCounts {
            rows: self.rows,
            matched: self.matched,
        };
        writeln!(
            formatter,
            "rows    {} in {} shards, {} matched ({:.1} %), {} without a key",
            self.rows,
            self.shards,
            self.matched,
            percent(&all),
            self.null_keys
        )?;
        for (title, table) in [("source", &self.sources), ("path prefix", &self.prefixes)] {
            if table.is_empty() {
                continue;
            }
            writeln!(
                formatter,
                "\n{title:<44} {:>12} {:>12} {:>8}",
                "rows", "matched", "match"
            )?;
            for (name, counts) in table {
                let name = if name.is_empty() { "(none)" } else { name };
                let mark = if counts.matched == 0 {
                    "  <- matches nothing"
                } else {
                    ""
                };
                writeln!(
                    formatter,
                    "{name:<44} {:>12} {:>12} {:>6.1} %{mark}",
                    counts.rows,
                    counts.matched,
                    percent(counts)
                )?;
            }
        }
        if !self.columns.is_empty() {
            writeln!(
                formatter,
                "\n{:<44} {:>12} {:>12} {:>8}",
                "column", "populated", "null", "error"
            )?;
            for (name, counts) in &self.columns {
                writeln!(
                    formatter,
                    "{name:<44} {:>12} {:>12} {:>8}",
                    counts.populated, counts.null, counts.error
                )?;
            }
        }
        write_row_errors(formatter, &self.row_errors)?;
        if !self.unmatched_prefixes.is_empty() {
            writeln!(
                formatter,
                "\nNo row matches under {}.\nIf that is a source of its own, add a marker for it to dataset.sources and its file to the index.",
                self.unmatched_prefixes.join(", ")
            )?;
        }
        for failure in &self.failures {
            writeln!(
                formatter,
                "unreadable: {}: {}",
                failure.path, failure.reason
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_whole_folders() {
        let table = [
            ("s3://bucket/a/b/c.jpg", 1, "s3://bucket/"),
            ("s3://bucket/a/b/c.jpg", 2, "s3://bucket/a/"),
            ("s3://bucket/a/b/c.jpg", 9, "s3://bucket/a/b/"),
            ("a/b.jpg", 1, "a/"),
            ("b.jpg", 3, ""),
            ("/x/y", 1, "/"),
        ];
        for (path, depth, expected) in table {
            assert_eq!(path_prefix(path, depth), expected, "{path} at {depth}");
        }
    }
}
