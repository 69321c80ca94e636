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
use storage::state::side_inputs::content_hash;
use storage::{ObjectMeta, Store};
use tokio::runtime::Handle;

use crate::arrow_types::same_values;
use crate::column_plan::natural_type;
use crate::error::{Error, Result};
use crate::keys::{self, KeyColumn, KeyKind};
use crate::leaf::LeafReader;
use crate::lookup::json_lines::{
    LONGEST_LINE, LineKey, LineText, beginning, member_names, parse_line, skip_line,
};
use crate::lookup::key_table::{Group, KeyTable};
use crate::lookup::window::{RemoteObject, WindowReader, WindowedChunk};
use crate::lookup::{Found, Limits, Lookup, NONE, PassError, PassStats, rows_of, unopened};
use crate::parquet_file::{ParquetFile, TailHint, chunk_range};
use crate::workers::map_parallel;
use parquet::file::reader::ChunkReader;

/// Bytes of bookkeeping that a kept text costs beside its own.
const TEXT_OVERHEAD: u64 = 48;
/// Complaints about bad lines, and about bad values, a file.
const SHOWN: u64 = 3;
/// Bytes of a file's first line that are kept for messages.
const FIRST_LINE: usize = 64 << 10;
/// Texts and integers may have the same bytes and are no equal keys: each have a group.
const BYTES: Group = 0;
const INTEGERS: Group = 1;

fn group_of(kind: KeyKind) -> Group {
    match kind {
        KeyKind::Integer => INTEGERS,
        _ => BYTES,
    }
}

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
            let file = ParquetFile::open(&*store, meta, &hint)
                .await
                .map_err(|error| unopened(uri, error))?;
            file.check_names()
                .map_err(|error| Error::side_input(uri, error))?;
            let (key_leaf, file_kind) =
                keys::kind_of(&file, &key_column).map_err(|error| Error::side_input(uri, error))?;
            let first_kind: KeyKind = *kind.get_or_insert(file_kind);
            if first_kind == KeyKind::Nothing {
                kind = Some(file_kind);
            }
            if !first_kind.can_equal(file_kind) {
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

    /// The files, each with what tells its content from another.
    pub async fn content_hashes(&self) -> Result<Vec<(ObjectMeta, String)>> {
        let mut hashes = Vec::with_capacity(self.files.len());
        for file in &self.files {
            hashes.push(match file {
                TextFile::Parquet { file, .. } => (file.meta.clone(), file.footer_sha256.clone()),
                TextFile::Lines { object, uri } => {
                    let meta = ObjectMeta {
                        key: object.key.clone(),
                        size: object.size,
                        etag: object.etag.clone(),
                    };
                    let hash = content_hash(&*object.store, &meta).await;
                    let hash = hash.map_err(|error| unopened(uri, error.into()))?;
                    (meta, hash)
                }
            });
        }
        Ok(hashes)
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
        let has_lines = self
            .files
            .files
            .iter()
            .any(|file| matches!(file, TextFile::Lines { .. }));
        // Only its lines tell what keys a file of lines has.
        self.files.kind.filter(|_| !has_lines)
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
        let group = |keys: &&KeyColumn| vec![group_of(keys.kind); keys.len()];
        let groups: Vec<_> = shards.iter().map(group).collect();
        let mut kinds: Vec<Group> = groups
            .iter()
            .flat_map(|rows| rows.first())
            .copied()
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
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
                TextFile::Lines { object, uri } => {
                    self.read_lines(object, uri, position, &keeper, &kinds)
                }
                TextFile::Parquet {
                    object,
                    file,
                    key_leaf,
                    text_leaves,
                } => {
                    let group = self.files.kind.map_or(BYTES, group_of);
                    let leaves = (*key_leaf, &text_leaves[..]);
                    read_parquet(object, file, leaves, group, position, &keeper)
                }
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
            unfit: Vec::new(),
            groups: None,
            stats,
        })
    }
}

impl TextLookup {
    /// Reads a file of lines; `kinds` are the groups of the shards' keys.
    fn read_lines(
        &self,
        object: &RemoteObject,
        uri: &str,
        position: u64,
        keeper: &Keeper<'_>,
        kinds: &[Group],
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
        let first = reader.fill_buf().map_err(|error| failed(&error))?;
        let mark = beginning(first).map_err(|reason| failed(&reason))?;
        reader.consume(mark);
        let mut seen = SeenLines::new(uri, self.files.columns.len());
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let read = (&mut reader)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)
                .map_err(|error| failed(&error))?;
            if read == 0 {
                self.check_use(&seen, kinds)
                    .map_err(|reason| failed(&reason))?;
                return Ok(seen.stats);
            }
            number += 1;
            if read as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
                skip_line(&mut reader).map_err(|error| failed(&error))?;
                seen.bad_line(number, "longer than 64 MiB");
                continue;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            seen.stats.rows_read += 1;
            if seen.first.is_empty() {
                seen.first
                    .extend_from_slice(&line[..line.len().min(FIRST_LINE)]);
            }
            match parse_line(&line, &self.files.key_column, &self.files.columns) {
                Ok(parsed) => {
                    let group = match &parsed.key {
                        LineKey::Text(_) => BYTES,
                        LineKey::Integer(..) => INTEGERS,
                    };
                    seen.keys[usize::from(group)] += 1;
                    let found = keeper.table.find(parsed.key.bytes(), group);
                    for (column, text) in parsed.texts.iter().enumerate() {
                        seen.columns[column] |= *text != LineText::Absent;
                        match (text, found) {
                            (LineText::Text(text), Some(key)) if !text.trim().is_empty() => {
                                keeper.keep(key, column, position + number, text)?;
                            }
                            (LineText::Unfit(reason), _) => {
                                seen.bad_value(number, &self.files.columns[column], reason);
                            }
                            _ => {}
                        }
                    }
                }
                Err(reason) => seen.bad_line(number, &reason),
            }
        }
    }

    /// Refuses a file of which not one line is of use, as a Parquet file without the columns is.
    fn check_use(&self, seen: &SeenLines<'_>, kinds: &[Group]) -> Result<(), String> {
        let key = &self.files.key_column;
        let lines = seen.stats.rows_read;
        let [texts, integers] = seen.keys;
        if lines == 0 {
            return Ok(());
        }
        if texts + integers == 0 {
            let reason = seen.reason.as_deref().unwrap_or("too long");
            let ends = if seen.first.trim_ascii_end().contains(&b'\r') {
                "; lines end in LF or CR LF, not in CR alone"
            } else {
                ""
            };
            return Err(format!(
                "none of its {lines} lines is a JSON object with a key under {key:?} (the first: {reason}{ends})"
            ));
        }
        if !seen.columns.contains(&true) {
            return Err(format!(
                "none of its {lines} lines has a member {}; those of the first are {}",
                self.files.columns.join(" or "),
                member_names(&seen.first)
            ));
        }
        let can_match =
            kinds.is_empty() || kinds.iter().any(|group| seen.keys[usize::from(*group)] > 0);
        if can_match {
            return Ok(());
        }
        let (theirs, ours) = if texts > 0 {
            ("texts", "integers")
        } else {
            ("integers", "texts")
        };
        Err(format!(
            "its keys under {key:?} are {theirs}, those of main's {:?} are {ours}; they can never be equal",
            self.target_key
        ))
    }
}

/// What was met in a file of lines.
struct SeenLines<'a> {
    uri: &'a str,
    stats: PassStats,
    /// Lines with a key, by the key's group.
    keys: [u64; 2],
    /// Which columns a line had.
    columns: Vec<bool>,
    /// The beginning of the first line.
    first: Vec<u8>,
    /// What was wrong with the first bad line.
    reason: Option<String>,
}

impl<'a> SeenLines<'a> {
    fn new(uri: &'a str, columns: usize) -> Self {
        Self {
            uri,
            stats: PassStats::default(),
            keys: [0; 2],
            columns: vec![false; columns],
            first: Vec::new(),
            reason: None,
        }
    }

    fn bad_line(&mut self, number: u64, reason: &str) {
        self.stats.bad_lines += 1;
        if self.stats.bad_lines <= SHOWN {
            tracing::warn!("{}, line {number}: {reason}; the line is skipped", self.uri);
        }
        self.reason.get_or_insert_with(|| reason.to_owned());
    }

    fn bad_value(&mut self, number: u64, column: &str, reason: &str) {
        self.stats.bad_values += 1;
        if self.stats.bad_values <= SHOWN {
            let uri = self.uri;
            tracing::warn!(
                "{uri}, line {number}, column {column:?}: {reason}; it counts as absent"
            );
        }
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
    (key_leaf, text_leaves): (usize, &[usize]),
    key_group: Group,
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
                Some(key) => {
                    hits.extend(keeper.table.find(key, key_group).map(|found| (row, found)))
                }
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
                        Err(_) => {
                            stats.bad_values += 1;
                            if stats.bad_values <= SHOWN {
                                let uri = &file.uri;
                                tracing::warn!(
                                    "{uri}, row group {group}, row {hit}: the text is not UTF-8; it counts as absent"
                                );
                            }
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
