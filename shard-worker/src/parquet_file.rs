//! A Parquet object of which only the footer and the asked-for column chunks are in memory.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use parquet::basic::{Compression, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::TypePtr;
use sha2::{Digest, Sha256};
use storage::{ObjectMeta, Store};

use crate::encrypted::encrypted_leaves;
use crate::error::ShardError;

const MAGIC: &[u8; 4] = b"PAR1";
const TRAILER: u64 = 8;
/// A longer footer, in bytes, is not read: parsed, it takes several times as much, and one of a
/// hundred thousand column chunks is a tenth of this.
const LARGEST_FOOTER: u64 = 64 << 20;
/// Rows are counted in 32 bits.
const MOST_ROWS: i64 = u32::MAX as i64 - 1;
/// Neighbouring ranges at the end of a file count as one tail up to this gap, in bytes.
const TAIL_GAP: u64 = 64 << 10;
const SMALLEST_TAIL: u64 = 64 << 10;
/// Four MiB take about as long as another request's round trip.
const LARGEST_TAIL: u64 = 4 << 20;

/// How much of a file's end to read at first, learnt from the files before it: if the columns
/// that are wanted lie behind the image column, one read brings them and the footer.
#[derive(Debug)]
pub struct TailHint(AtomicU64);

impl Default for TailHint {
    fn default() -> Self {
        Self(AtomicU64::new(SMALLEST_TAIL))
    }
}

impl TailHint {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A footer alone was longer than what was read.
    fn grow(&self, footer: u64) {
        let wanted = (footer * 17 / 16).min(LARGEST_TAIL);
        self.0.fetch_max(wanted, Ordering::Relaxed);
    }

    /// Learns from a file of `size` bytes of which `wanted` (ascending) was needed.
    fn learn(&self, size: u64, wanted: &[Range<u64>]) {
        let mut start = size;
        for range in wanted.iter().rev() {
            if range.end + TAIL_GAP < start {
                break;
            }
            start = start.min(range.start);
        }
        // A quarter more, and it grows at once and shrinks slowly: shards differ by as much, and
        // one that is a little larger than the last must not cost another request.
        let tail = ((size - start) * 5 / 4).clamp(SMALLEST_TAIL, LARGEST_TAIL);
        if size - start <= LARGEST_TAIL {
            let before = self.get();
            self.0
                .store(tail.max(before - before / 16), Ordering::Relaxed);
        }
    }
}

/// Parts of an object, by position.
#[derive(Debug, Clone, Default)]
pub struct SparseBytes {
    len: u64,
    segments: Vec<(u64, Bytes)>,
}

impl SparseBytes {
    /// A slice that lies in one segment.
    pub fn slice(&self, start: u64, length: usize) -> Option<Bytes> {
        let at = self
            .segments
            .partition_point(|(offset, _)| *offset <= start);
        let candidates = self.segments[..at].iter().rev();
        for (offset, bytes) in candidates {
            let from = (start - offset) as usize;
            if from + length <= bytes.len() {
                return Some(bytes.slice(from..from + length));
            }
        }
        None
    }

    /// All bytes from `start` to the end of its segment.
    fn rest(&self, start: u64) -> Option<Bytes> {
        let at = self
            .segments
            .partition_point(|(offset, _)| *offset <= start);
        self.segments[..at]
            .iter()
            .rev()
            .find(|(offset, bytes)| start < offset + bytes.len() as u64)
            .map(|(offset, bytes)| bytes.slice((start - offset) as usize..))
    }

    fn insert(&mut self, offset: u64, bytes: Bytes) {
        let at = self.segments.partition_point(|(other, _)| *other <= offset);
        self.segments.insert(at, (offset, bytes));
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.segments.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    fn missing(&self, start: u64) -> ParquetError {
        ParquetError::EOF(format!(
            "byte {start} of {} was not fetched: the file's offsets contradict one another",
            self.len
        ))
    }
}

impl Length for SparseBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

/// A reader over one segment.
pub struct SegmentReader(Bytes);

impl Read for SegmentReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0.advance(count);
        Ok(count)
    }
}

impl ChunkReader for SparseBytes {
    type T = SegmentReader;

    fn get_read(&self, start: u64) -> parquet::errors::Result<SegmentReader> {
        self.rest(start)
            .map(SegmentReader)
            .ok_or_else(|| self.missing(start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.slice(start, length).ok_or_else(|| self.missing(start))
    }
}

/// A Parquet object: its footer, and those of its bytes that were fetched.
#[derive(Debug, Clone)]
pub struct ParquetFile {
    /// For messages.
    pub uri: String,
    /// As listed.
    pub meta: ObjectMeta,
    /// The parsed footer.
    pub metadata: Arc<ParquetMetaData>,
    /// Lower-case hex SHA-256 of the footer's bytes.
    pub footer_sha256: String,
    /// Leaves of which chunks are encrypted.
    pub encrypted: Arc<BTreeSet<usize>>,
    /// What was fetched.
    pub bytes: Arc<SparseBytes>,
}

impl ParquetFile {
    /// Reads the end of the object and parses the footer.
    pub async fn open(
        store: &dyn Store,
        meta: ObjectMeta,
        hint: &TailHint,
    ) -> Result<Self, ShardError> {
        let uri = format!("{}{}", store.uri(), meta.key);
        if meta.size < 12 {
            return Err(ShardError::malformed(
                &uri,
                format!("{} bytes are too few for a Parquet file", meta.size),
            ));
        }
        let mut tail = hint.get().min(meta.size);
        loop {
            let start = meta.size - tail;
            let read = store
                .read_ranges(
                    &meta.key,
                    std::slice::from_ref(&(start..meta.size)),
                    Some(&meta.etag),
                )
                .await?;
            let bytes = read.into_iter().next().unwrap_or_default();
            if bytes.len() as u64 != tail {
                return Err(ShardError::malformed(
                    &uri,
                    "the object is shorter than listed",
                ));
            }
            let footer_length =
                footer_length(&bytes).map_err(|reason| ShardError::malformed(&uri, reason))?;
            let needed = footer_length + TRAILER;
            if needed > meta.size {
                return Err(ShardError::malformed(
                    &uri,
                    format!(
                        "the footer claims {footer_length} bytes of a file of {}",
                        meta.size
                    ),
                ));
            }
            check_length(footer_length).map_err(|reason| ShardError::malformed(&uri, reason))?;
            if needed > tail {
                hint.grow(needed);
                tail = needed;
                continue;
            }
            let from = (tail - needed) as usize;
            let footer = &bytes[from..from + footer_length as usize];
            let sparse = SparseBytes {
                len: meta.size,
                segments: vec![(start, bytes.clone())],
            };
            return Self::parse(&uri, meta, footer, sparse);
        }
    }

    /// A file that is in memory as a whole.
    pub fn from_bytes(uri: &str, meta: ObjectMeta, bytes: Bytes) -> Result<Self, ShardError> {
        if bytes.len() < 12 {
            return Err(ShardError::malformed(
                uri,
                format!("{} bytes are too few for a Parquet file", bytes.len()),
            ));
        }
        let footer_length =
            footer_length(&bytes).map_err(|reason| ShardError::malformed(uri, reason))?;
        let Some(from) = (bytes.len() as u64).checked_sub(footer_length + TRAILER) else {
            return Err(ShardError::malformed(
                uri,
                format!(
                    "the footer claims {footer_length} bytes of a file of {}",
                    bytes.len()
                ),
            ));
        };
        let footer = &bytes[from as usize..(from + footer_length) as usize];
        let sparse = SparseBytes {
            len: bytes.len() as u64,
            segments: vec![(0, bytes.clone())],
        };
        Self::parse(uri, meta, footer, sparse)
    }

    fn parse(
        uri: &str,
        meta: ObjectMeta,
        footer: &[u8],
        bytes: SparseBytes,
    ) -> Result<Self, ShardError> {
        let encrypted = encrypted_leaves(footer);
        let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(|error| {
            let why = if encrypted.is_empty() {
                error.to_string()
            } else {
                "what it says of encrypted columns is encrypted, too; give the worker a plain copy"
                    .to_owned()
            };
            ShardError::malformed(uri, format!("the footer cannot be parsed: {why}"))
        })?;
        let file = Self {
            uri: uri.to_owned(),
            meta,
            metadata: Arc::new(metadata),
            footer_sha256: hex(&Sha256::digest(footer)),
            encrypted: Arc::new(encrypted),
            bytes: Arc::new(bytes),
        };
        file.check_footer()?;
        Ok(file)
    }

    /// Row counts and byte ranges that contradict one another would shift rows: refuse them.
    fn check_footer(&self) -> Result<(), ShardError> {
        let declared = self.metadata.file_metadata().num_rows();
        let mut rows = 0_i64;
        for (group, row_group) in self.metadata.row_groups().iter().enumerate() {
            if row_group.num_rows() < 0 {
                return Err(ShardError::malformed(
                    &self.uri,
                    format!("row group {group} has {} rows", row_group.num_rows()),
                ));
            }
            rows = rows.saturating_add(row_group.num_rows());
            for chunk in row_group.columns() {
                if chunk_range(chunk, self.meta.size).is_none() {
                    let reason = format!(
                        "row group {group}: column {} lies outside the file",
                        chunk.column_path()
                    );
                    return Err(ShardError::malformed(&self.uri, reason));
                }
            }
        }
        if rows > MOST_ROWS {
            return Err(ShardError::malformed(
                &self.uri,
                format!("the footer says {rows} rows; a shard has {MOST_ROWS} at most"),
            ));
        }
        if rows != declared {
            return Err(ShardError::malformed(
                &self.uri,
                format!("the footer says {declared} rows, its row groups hold {rows}"),
            ));
        }
        Ok(())
    }

    /// Bytes of these leaves in the file.
    pub fn size_of<'a>(&self, leaves: impl IntoIterator<Item = &'a usize> + Clone) -> u64 {
        let groups = self.metadata.row_groups().iter();
        let sizes = groups.flat_map(|group| {
            let leaves = leaves.clone().into_iter();
            leaves.map(|&leaf| group.column(leaf).compressed_size())
        });
        sizes.fold(0, i64::saturating_add).max(0) as u64
    }

    /// Sees to it that a leaf can be read by whoever has no keys.
    pub fn check_plain(&self, leaf: usize) -> Result<(), ShardError> {
        if !self.encrypted.contains(&leaf) {
            return Ok(());
        }
        let column = self.metadata.file_metadata().schema_descr().column(leaf);
        Err(ShardError::schema(
            &self.uri,
            format!(
                "column {:?} is encrypted, and the worker has no keys; drop it with extractScaffold, or give the worker a plain copy",
                column.path().string()
            ),
        ))
    }

    /// Fetches the column chunks of `leaves` that are not there yet, in one call to the store.
    pub async fn fetch(
        &mut self,
        store: &dyn Store,
        leaves: &[usize],
        hint: &TailHint,
    ) -> Result<(), ShardError> {
        leaves.iter().try_for_each(|&leaf| self.check_plain(leaf))?;
        let mut wanted: Vec<Range<u64>> = Vec::new();
        for row_group in self
            .metadata
            .row_groups()
            .iter()
            .filter(|group| group.num_rows() > 0)
        {
            for &leaf in leaves {
                wanted.extend(chunk_range(row_group.column(leaf), self.meta.size));
            }
        }
        wanted.retain(|range| !range.is_empty());
        wanted.sort_unstable_by_key(|range| (range.start, range.end));
        hint.learn(self.meta.size, &wanted);
        wanted.retain(|range| {
            self.bytes
                .slice(range.start, (range.end - range.start) as usize)
                .is_none()
        });
        // Adjacent chunks become one segment, so that they stay one request and one buffer.
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in wanted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        if merged.is_empty() {
            return Ok(());
        }
        let fetched = store
            .read_ranges(&self.meta.key, &merged, Some(&self.meta.etag))
            .await?;
        let sparse = Arc::make_mut(&mut self.bytes);
        for (range, bytes) in merged.into_iter().zip(fetched) {
            sparse.insert(range.start, bytes);
        }
        Ok(())
    }

    /// Rows in the file.
    pub fn num_rows(&self) -> usize {
        self.metadata.file_metadata().num_rows().max(0) as usize
    }

    /// The top-level columns.
    pub fn roots(&self) -> &[TypePtr] {
        self.metadata.file_metadata().schema().get_fields()
    }

    /// Names of the top-level columns, for messages.
    pub fn column_names(&self) -> String {
        let names: Vec<&str> = self.roots().iter().map(|field| field.name()).collect();
        names.join(", ")
    }

    /// Position of the top-level column of exactly this name.
    pub fn root(&self, name: &str) -> Option<usize> {
        self.roots().iter().position(|field| field.name() == name)
    }

    /// The leaves of a top-level column, in order. Leaves are never looked up by dotted path:
    /// a name may hold a dot.
    pub fn leaves_of(&self, root: usize) -> Range<usize> {
        let schema = self.metadata.file_metadata().schema_descr();
        // They lie side by side, in the order of their roots.
        let first_of = |root: usize| {
            let (mut low, mut high) = (0, schema.num_columns());
            while low < high {
                let middle = low + (high - low) / 2;
                if schema.get_column_root_idx(middle) < root {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        first_of(root)..first_of(root + 1)
    }

    /// Whether a top-level column holds INT96 times: they reach further than readers, which
    /// wrap them around, and than any declared type.
    pub fn has_int96(&self, root: usize) -> bool {
        let schema = self.metadata.file_metadata().schema_descr();
        self.leaves_of(root)
            .any(|leaf| schema.column(leaf).physical_type() == PhysicalType::INT96)
    }

    /// Positions of the top-level columns, for many look-ups by name.
    pub fn roots_by_name(&self) -> HashMap<&str, usize> {
        let roots = self.roots().iter().enumerate();
        roots.map(|(root, field)| (field.name(), root)).collect()
    }

    /// Row counts of the row groups that hold rows.
    pub fn group_rows(&self) -> Vec<usize> {
        self.groups().map(|(_, rows)| rows).collect()
    }

    /// Row groups that hold rows: number and row count.
    pub fn groups(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let groups = self.metadata.row_groups().iter().enumerate();
        groups
            .filter(|(_, group)| group.num_rows() > 0)
            .map(|(number, group)| (number, group.num_rows() as usize))
    }

    /// Two top-level columns of one name would make every look-up by name a guess.
    pub fn check_names(&self) -> Result<(), ShardError> {
        let mut names: Vec<&str> = self.roots().iter().map(|field| field.name()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ShardError::schema(
                &self.uri,
                format!("two columns are called {:?}", pair[0]),
            ));
        }
        Ok(())
    }
}

/// Where a column chunk lies, if that is inside a file of `size` bytes. Some writers record a
/// dictionary page at offset 0, where the magic is: then the data page starts the chunk.
pub fn chunk_range(chunk: &ColumnChunkMetaData, size: u64) -> Option<Range<u64>> {
    let start = u64::try_from(chunk_start(chunk)).ok()?;
    let length = u64::try_from(chunk.compressed_size()).ok()?;
    let end = start.checked_add(length)?;
    (end <= size && chunk.file_path().is_none()).then_some(start..end)
}

/// Offset of the first page of a column chunk.
pub fn chunk_start(chunk: &ColumnChunkMetaData) -> i64 {
    match chunk.dictionary_page_offset() {
        Some(offset) if offset > 0 && offset < chunk.data_page_offset() => offset,
        _ => chunk.data_page_offset(),
    }
}

/// Codecs that every current reader knows; others are decoded and written anew.
pub fn is_portable(codec: Compression) -> bool {
    !matches!(codec, Compression::LZO | Compression::LZ4)
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn footer_length(tail: &[u8]) -> Result<u64, String> {
    let trailer = &tail[tail.len() - TRAILER as usize..];
    let magic = &trailer[4..];
    if magic == b"PARE" {
        return Err("the footer is encrypted; give the worker a plain copy".to_owned());
    }
    if magic != MAGIC {
        return Err("no Parquet magic at the end: not a Parquet file, or cut off".to_owned());
    }
    let length = u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]);
    Ok(u64::from(length))
}

fn check_length(footer: u64) -> Result<(), String> {
    if footer > LARGEST_FOOTER {
        return Err(format!(
            "the footer claims {footer} bytes; one of more than {LARGEST_FOOTER} is not read"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_that_differ_by_a_fifth_are_read_at_once() {
        let hint = TailHint::default();
        let (size, mut missed) = (100 << 20, 0);
        for shard in 0..1000_u64 {
            // Between 0.8 and 1.2 MiB, without a pattern.
            let scrambled = (shard.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 400;
            let tail = (800 + scrambled) << 10;
            missed += u64::from(hint.get() < tail);
            let (key, footer) = (4..20_000, 9_000);
            hint.learn(size, &[key, size - tail..size - footer]);
        }
        assert!(missed <= 10, "{missed} of 1000");
        assert!(hint.get() <= (1200 << 10) * 5 / 4);
    }

    #[test]
    fn image_bytes_before_a_footer_are_not_read() {
        let hint = TailHint::default();
        for _ in 0..10 {
            hint.learn(100 << 20, &[4..20_000, 30 << 20..31 << 20]);
        }
        assert_eq!(hint.get(), SMALLEST_TAIL);
    }
}
