//! Reads one column chunk leaf by leaf, in order, without Arrow's record assembly.
//!
//! Every record is read: no row selection, no page pruning, so that position always equals
//! row. Only leaves without repetition are read here.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, SerializedPageReader};

use crate::parquet_file::chunk_start;

/// Records read at a time: small enough that levels and values stay in the L2 cache.
pub const BATCH: usize = 8192;

/// A page reader over one column chunk, whatever its writer recorded as dictionary offset.
pub fn page_reader<R: ChunkReader + 'static>(
    source: Arc<R>,
    group: &RowGroupMetaData,
    leaf: usize,
) -> Result<SerializedPageReader<R>> {
    let chunk = group.column(leaf);
    let rows = group.num_rows().max(0) as usize;
    match with_true_start(chunk)? {
        Some(mended) => SerializedPageReader::new(source, &mended, rows, None),
        None => SerializedPageReader::new(source, chunk, rows, None),
    }
}

/// A reader of page headers only: without a codec, which costs more to set up than all the
/// headers of a small chunk cost to read.
pub fn header_reader<R: ChunkReader + 'static>(
    source: Arc<R>,
    group: &RowGroupMetaData,
    leaf: usize,
) -> Result<SerializedPageReader<R>> {
    let chunk = group.column(leaf);
    let mended = with_true_start(chunk)?.unwrap_or_else(|| chunk.clone());
    let builder = mended
        .into_builder()
        .set_compression(Compression::UNCOMPRESSED);
    SerializedPageReader::new(
        source,
        &builder.build()?,
        group.num_rows().max(0) as usize,
        None,
    )
}

/// The chunk without its dictionary offset, where that is wrong.
fn with_true_start(chunk: &ColumnChunkMetaData) -> Result<Option<ColumnChunkMetaData>> {
    let is_wrong = |offset| offset != chunk_start(chunk);
    if !chunk.dictionary_page_offset().is_some_and(is_wrong) {
        return Ok(None);
    }
    let builder = chunk.clone().into_builder();
    builder.set_dictionary_page_offset(None).build().map(Some)
}

/// Reads a leaf in batches; each batch hands out definition levels and values.
pub struct LeafReader<T: DataType> {
    reader: ColumnReaderImpl<T>,
    levels: Vec<i16>,
    values: Vec<T::T>,
    max_level: i16,
    rows_left: usize,
}

/// One batch: `values` holds only the present ones.
pub struct LeafBatch<'a, V> {
    levels: Option<&'a [i16]>,
    max_level: i16,
    /// Values of the rows that have one, in row order.
    pub values: &'a [V],
    /// Rows in the batch.
    pub rows: usize,
}

impl<V> LeafBatch<'_, V> {
    /// Calls `visit(row in batch, value)` for every row, nulls as `None`.
    pub fn for_each<'b>(&'b self, mut visit: impl FnMut(usize, Option<&'b V>)) {
        let mut next = 0;
        for row in 0..self.rows {
            if self.is_present(row) {
                visit(row, Some(&self.values[next]));
                next += 1;
            } else {
                visit(row, None);
            }
        }
    }

    /// Whether the row has a value.
    #[inline]
    pub fn is_present(&self, row: usize) -> bool {
        self.levels
            .is_none_or(|levels| levels[row] == self.max_level)
    }

    /// Values in the rows before `row`, counted from `from` of which `before` is the count.
    #[inline]
    pub fn rank(&self, from: usize, before: usize, row: usize) -> usize {
        match self.levels {
            None => before + (row - from),
            Some(levels) => {
                before
                    + levels[from..row]
                        .iter()
                        .filter(|&&level| level == self.max_level)
                        .count()
            }
        }
    }
}

impl<T: DataType> LeafReader<T> {
    /// Opens the leaf of one row group.
    pub fn open<R: ChunkReader + 'static>(
        source: Arc<R>,
        metadata: &ParquetMetaData,
        group: usize,
        leaf: usize,
    ) -> Result<Self> {
        let row_group = metadata.row_group(group);
        let descriptor = metadata.file_metadata().schema_descr().column(leaf);
        if descriptor.max_rep_level() > 0 {
            return Err(ParquetError::General(format!(
                "column {} is repeated",
                descriptor.path()
            )));
        }
        if descriptor.physical_type() != T::get_physical_type() {
            return Err(ParquetError::General(format!(
                "column {} is stored as {}",
                descriptor.path(),
                descriptor.physical_type()
            )));
        }
        let pages: Box<dyn PageReader> = Box::new(page_reader(source, row_group, leaf)?);
        let reader = get_typed_column_reader::<T>(get_column_reader(descriptor.clone(), pages));
        Ok(Self {
            reader,
            levels: Vec::new(),
            values: Vec::new(),
            max_level: descriptor.max_def_level(),
            rows_left: row_group.num_rows().max(0) as usize,
        })
    }

    /// The next batch, or `None` after the last row. Fewer rows than the footer says, or more,
    /// is an error: it would shift all that follows.
    pub fn next_batch(&mut self) -> Result<Option<LeafBatch<'_, T::T>>> {
        self.levels.clear();
        self.values.clear();
        if self.rows_left == 0 {
            return Ok(None);
        }
        let wanted = self.rows_left.min(BATCH);
        let levels = (self.max_level > 0).then_some(&mut self.levels);
        let (rows, values, level_count) =
            self.reader
                .read_records(wanted, levels, None, &mut self.values)?;
        if rows == 0 {
            return Err(ParquetError::EOF(format!(
                "the column ends {} rows early",
                self.rows_left
            )));
        }
        let consistent = if self.max_level > 0 {
            level_count == rows
        } else {
            values == rows
        };
        if !consistent {
            return Err(ParquetError::General(format!(
                "{rows} rows with {level_count} levels and {values} values"
            )));
        }
        self.rows_left -= rows;
        let levels = (self.max_level > 0).then_some(&self.levels[..]);
        Ok(Some(LeafBatch {
            levels,
            max_level: self.max_level,
            values: &self.values,
            rows,
        }))
    }

    /// Passes over `rows` rows, decoding as little as the encoding allows.
    pub fn skip(&mut self, rows: usize) -> Result<()> {
        let skipped = self.reader.skip_records(rows)?;
        if skipped != rows {
            return Err(ParquetError::EOF(format!(
                "the column ends {} rows early",
                rows - skipped
            )));
        }
        self.rows_left -= rows.min(self.rows_left);
        Ok(())
    }
}
