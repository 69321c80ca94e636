//! The lookup of `recaptionMerge`: texts by key, from Parquet or JSON Lines.
//!
//! Where a key has several texts, the last one that is not blank wins: files in byte order of
//! their names, lines or rows in file order.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::{ArrayRef, LargeStringBuilder};
use arrow::datatypes::{DataType as Arrow, FieldRef};
use parquet::data_type::ByteArrayType;
use storage::{ObjectMeta, Store};
use tokio::runtime::Handle;

use crate::arrow_types::same_values;
use crate::column_plan::natural_type;
use crate::error::{Error, Result, ShardError};
use crate::keys::{self, KeyColumn, KeyKind};
use crate::leaf::LeafReader;
use crate::lookup::json_lines::{LONGEST_LINE, parse_line, skip_line};
use crate::lookup::key_table::KeyTable;
use crate::lookup::window::{RemoteObject, WindowReader, WindowedChunk};
use crate::lookup::{Found, Limits, Lookup, NONE, PassError, PassStats, rows_of};
use crate::parquet_file::{ParquetFile, TailHint, chunk_range};
use crate::workers::map_parallel;
use parquet::file::reader::ChunkReader;

/// Bytes of bookkeeping that a kept text costs beside its own.
const TEXT_OVERHEAD: u64 = 48;
/// Complaints about bad lines a file.
const SHOWN_BAD_LINES: u64 = 3;

#[derive(Debug)]
enum TextFile {
    Lines {
        object: RemoteObject,
        uri: String,
    },
    Parquet {
        object: RemoteObject,
        file: Box<ParquetFile>,
        key_leaf: usize,
        text_leaves: Vec<usize>,
    },
}

/// The files of texts, in byte order.
#[derive(Debug)]
pub struct TextFiles {
    files: Vec<TextFile>,
    key_column: String,
    columns: Vec<String>,
    kind: Option<KeyKind>,
    width: u64,
}

impl TextFiles {
    /// Opens footers; JSON Lines files are opened when they are read.
    pub async fn open(
        uri: &str,
        store: Arc<dyn Store>,
        objects: Vec<ObjectMeta>,
        key_column: String,
        columns: Vec<String>,
        runtime: Handle,
    ) -> Result<Self> {
        let hint = TailHint::default();
        let mut files = Vec::new();
        let mut kind = None;
        let mut width = 256;
        for meta in objects {
            let object = RemoteObject {
                store: store.clone(),
                key: meta.key.clone(),
                etag: meta.etag.clone(),
                size: meta.size,
                runtime: runtime.clone(),
            };
            if !meta.key.ends_with(".parquet") {
                files.push(TextFile::Lines {
                    object,
                    uri: format!("{}{}", store.uri(), meta.key),
                });
                continue;
            }
            let file =
                ParquetFile::open(&*store, meta, &hint)
                    .await
                    .map_err(|error| match error {
                        ShardError::Storage(error) => Error::Storage(error),
                        other => Error::side_input(uri, other),
                    })?;
            file.check_names()
                .map_err(|error| Error::side_input(uri, error))?;
            let (key_leaf, file_kind) =
                keys::kind_of(&file, &key_column).map_err(|error| Error::side_input(uri, error))?;
            if *kind.get_or_insert(file_kind) != file_kind {
                return Err(Error::side_input(
                    &file.uri,
                    format!(
                        "key column {key_column:?} is {} here, but not in the files before it",
                        file_kind.describe()
                    ),
                ));
            }
            let text_leaves = columns
                .iter()
                .map(|name| text_leaf(&file, name))
                .collect::<Result<Vec<_>>>()?;
            for (group, rows) in file.groups() {
                let bytes: i64 = text_leaves
                    .iter()
                    .map(|&leaf| {
                        file.metadata
                            .row_group(group)
                            .column(leaf)
                            .uncompressed_size()
                    })
                    .sum();
                width = width.max(bytes.max(0) as u64 / rows as u64);
            }
            files.push(TextFile::Parquet {
                object,
                file: Box::new(file),
                key_leaf,
                text_leaves,
            });
        }
        Ok(Self {
            files,
            key_column,
            columns,
            kind,
            width,
        })
    }
}

fn text_leaf(file: &ParquetFile, name: &str) -> Result<usize> {
    let Some(root) = file.root(name) else {
        return Err(Error::side_input(
            &file.uri,
            format!(
                "no column {name:?}; its columns are {}",
                file.column_names()
            ),
        ));
    };
    let natural = natural_type(file, root).map_err(|error| Error::side_input(&file.uri, error))?;
    if !same_values(&natural, &Arrow::LargeUtf8) {
        return Err(Error::side_input(
            &file.uri,
            format!(
                "column {name:?} is {}, expected string",
                crate::arrow_types::spell(&natural)
            ),
        ));
    }
    let leaf = file.leaves_of(root).start;
    file.check_plain(leaf)
        .map_err(|error| Error::side_input(&file.uri, error))?;
    Ok(leaf)
}

/// The lookup.
#[derive(Debug)]
pub struct TextLookup {
    uri: String,
    target_key: String,
    fields: Vec<FieldRef>,
    files: TextFiles,
}

impl TextLookup {
    /// A lookup over open files.
    pub fn new(uri: &str, target_key: String, fields: Vec<FieldRef>, files: TextFiles) -> Self {
        Self {
            uri: uri.to_owned(),
            target_key,
            fields,
            files,
        }
    }
}

/// Best text so far: its position in the side input, and the text.
type Best = Option<(u64, Box<str>)>;

struct Keeper<'a> {
    table: &'a KeyTable<'a>,
    state: Mutex<Kept>,
    budget: u64,
}

struct Kept {
    /// For each column, for each key.
    best: Vec<Vec<Best>>,
    bytes: u64,
}

impl Keeper<'_> {
    fn keep(&self, key: u32, column: usize, position: u64, text: &str) -> Result<(), PassError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let slot = &mut state.best[column][key as usize];
        if slot.as_ref().is_some_and(|(before, _)| *before > position) {
            return Ok(());
        }
        let freed = slot
            .as_ref()
            .map_or(0, |(_, text)| text.len() as u64 + TEXT_OVERHEAD);
        state.bytes = state.bytes + text.len() as u64 + TEXT_OVERHEAD - freed;
        *slot = Some((position, text.into()));
        if state.bytes > self.budget {
            Err(PassError::OverBudget)
        } else {
            Ok(())
        }
    }
}

impl Lookup for TextLookup {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn target_key(&self) -> &str {
        &self.target_key
    }

    fn key_kind(&self) -> Option<KeyKind> {
        self.files.kind
    }

    fn decides_match(&self) -> bool {
        false
    }

    fn columns(&self) -> &[FieldRef] {
        &self.fields
    }

    fn value_width(&self) -> u64 {
        self.files.width + TEXT_OVERHEAD * self.fields.len() as u64
    }

    fn pass(&self, shards: &[&KeyColumn], limits: Limits<'_>) -> Result<Found, PassError> {
        let groups: Vec<_> = shards.iter().map(|keys| vec![0; keys.len()]).collect();
        let table = KeyTable::build(shards.to_vec(), &groups, limits.threads, limits.clock);
        let best = self
            .fields
            .iter()
            .map(|_| (0..table.numbers()).map(|_| None).collect())
            .collect();
        // Texts are held twice while the columns are built.
        let keeper = Keeper {
            table: &table,
            state: Mutex::new(Kept { best, bytes: 0 }),
            budget: limits.budget / 2,
        };
        let work: Vec<usize> = (0..self.files.files.len()).collect();
        let begun = Instant::now();
        let parts = map_parallel(limits.threads, &work, limits.clock, |_, &number| {
            if limits.stop.is_requested() {
                return Err(PassError::Stopped);
            }
            let position = (number as u64) << 40;
            match &self.files.files[number] {
                TextFile::Lines { object, uri } => self.read_lines(object, uri, position, &keeper),
                TextFile::Parquet {
                    object,
                    file,
                    key_leaf,
                    text_leaves,
                } => read_parquet(object, file, *key_leaf, text_leaves, position, &keeper),
            }
        })?;
        let mut stats = PassStats {
            keys: table.distinct() as u64,
            reading: begun.elapsed(),
            ..PassStats::default()
        };
        parts.iter().for_each(|part| stats.add(part));
        let kept = keeper
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut row_of_key = vec![NONE; table.numbers()];
        let mut found: Vec<usize> = Vec::new();
        for (key, row) in row_of_key.iter_mut().enumerate() {
            if kept.best.iter().any(|column| column[key].is_some()) {
                *row = found.len() as u32;
                found.push(key);
            }
        }
        stats.keys_found = found.len() as u64;
        let columns = kept
            .best
            .into_iter()
            .map(|column| {
                let mut builder = LargeStringBuilder::new();
                for &key in &found {
                    builder.append_option(column[key].as_ref().map(|(_, text)| text));
                }
                Arc::new(builder.finish()) as ArrayRef
            })
            .collect();
        Ok(Found {
            rows: rows_of(table.into_rows(), &row_of_key),
            columns,
            groups: None,
            stats,
        })
    }
}

impl TextLookup {
    fn read_lines(
        &self,
        object: &RemoteObject,
        uri: &str,
        position: u64,
        keeper: &Keeper<'_>,
    ) -> Result<PassStats, PassError> {
        let failed =
            |error: &dyn std::fmt::Display| PassError::Failed(Error::side_input(uri, error));
        let raw = whole(object).map_err(|error| failed(&error))?;
        let decoded: Box<dyn Read> = if uri.ends_with(".zst") {
            Box::new(zstd::stream::read::Decoder::new(raw).map_err(|error| failed(&error))?)
        } else if uri.ends_with(".gz") {
            Box::new(flate2::read::MultiGzDecoder::new(raw))
        } else {
            Box::new(raw)
        };
        let mut reader = BufReader::with_capacity(256 << 10, decoded);
        let mut stats = PassStats::default();
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let read = (&mut reader)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)
                .map_err(|error| failed(&error))?;
            if read == 0 {
                return Ok(stats);
            }
            number += 1;
            if read as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
                skip_line(&mut reader).map_err(|error| failed(&error))?;
                bad_line(&mut stats, uri, number, "longer than 64 MiB");
                continue;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            stats.rows_read += 1;
            match parse_line(&line, &self.files.key_column, &self.files.columns) {
                Ok(parsed) => {
                    let Some(key) = keeper.table.find(parsed.key.as_bytes(), 0) else {
                        continue;
                    };
                    for (column, text) in parsed.texts.iter().enumerate() {
                        if let Some(text) = text.as_deref().filter(|text| !text.trim().is_empty()) {
                            keeper.keep(key, column, position + number, text)?;
                        }
                    }
                }
                Err(reason) => bad_line(&mut stats, uri, number, &reason),
            }
        }
    }
}

fn bad_line(stats: &mut PassStats, uri: &str, number: u64, reason: &str) {
    stats.bad_lines += 1;
    if stats.bad_lines <= SHOWN_BAD_LINES {
        tracing::warn!("{uri}, line {number}: {reason}; the line is skipped");
    }
}

fn whole(object: &RemoteObject) -> parquet::errors::Result<Box<dyn Read>> {
    if object.size == 0 {
        return Ok(Box::new(std::io::empty()));
    }
    let reader: WindowReader = WindowedChunk::new(object.clone(), 0..object.size).get_read(0)?;
    Ok(Box::new(reader))
}

fn read_parquet(
    object: &RemoteObject,
    file: &ParquetFile,
    key_leaf: usize,
    text_leaves: &[usize],
    position: u64,
    keeper: &Keeper<'_>,
) -> Result<PassStats, PassError> {
    let failed = |group: usize, error: &dyn std::fmt::Display| {
        PassError::Failed(Error::side_input(
            &file.uri,
            format!("row group {group}: {error}"),
        ))
    };
    let mut stats = PassStats::default();
    let mut base = position;
    for (group, rows) in file.groups() {
        let source = |leaf: usize| {
            let range = chunk_range(file.metadata.row_group(group).column(leaf), file.meta.size)
                .ok_or_else(|| failed(group, &"a column lies outside the file"))?;
            Ok::<_, PassError>(Arc::new(WindowedChunk::new(object.clone(), range)))
        };
        let mut hits: Vec<(usize, u32)> = Vec::new();
        keys::visit(source(key_leaf)?, file, group, key_leaf, |row, key| {
            match key {
                Some(key) => hits.extend(keeper.table.find(key, 0).map(|found| (row, found))),
                None => stats.null_keys += 1,
            }
            Ok(())
        })
        .map_err(|error| failed(group, &error))?;
        stats.rows_read += rows as u64;
        if hits.is_empty() {
            base += rows as u64;
            continue;
        }
        for (column, &leaf) in text_leaves.iter().enumerate() {
            let mut reader =
                LeafReader::<ByteArrayType>::open(source(leaf)?, &file.metadata, group, leaf)
                    .map_err(|error| failed(group, &error))?;
            let mut left = &hits[..];
            let mut start = 0;
            while let Some(batch) = reader.next_batch().map_err(|error| failed(group, &error))? {
                let mut outcome = Ok(());
                batch.for_each(|row, value| {
                    // Two rows never share a position, but one key may have several rows.
                    let Some(&(hit, key)) = left.first().filter(|(hit, _)| *hit == start + row)
                    else {
                        return;
                    };
                    left = &left[1..];
                    let Some(value) = value else { return };
                    if outcome.is_err() {
                        return;
                    }
                    outcome = match std::str::from_utf8(value.data()) {
                        Ok(text) if text.trim().is_empty() => Ok(()),
                        Ok(text) => keeper.keep(key, column, base + hit as u64, text),
                        // As a line of JSON that is not UTF-8: skipped, and counted.
                        Err(_) => {
                            stats.bad_lines += 1;
                            Ok(())
                        }
                    };
                });
                outcome?;
                start += batch.rows;
            }
        }
        base += rows as u64;
    }
    Ok(stats)
}
