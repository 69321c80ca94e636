//! Reads one column chunk leaf by leaf, in order, without Arrow's record assembly.
//!
//! Every record is read: no row selection, no page pruning, so that position always equals
//! row. Only leaves without repetition are read here. A leaf may be shared out in parts: whole
//! pages, counted from the chunk's start.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{Compression, Type as PhysicalType};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{AsBytes, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, SerializedPageReader};

use crate::pages::{BoundedPages, may_be_large};
use crate::parquet_file::chunk_start;

/// Records read at a time, at most: small enough that levels and values stay in the L2 cache.
pub const BATCH: usize = 8192;
/// Bytes of values read at a time: a batch ends with the step that reaches them, however few
/// its records.
const BATCH_BYTES: usize = 1 << 20;
/// Records of a step, where values are short on average and may all the same be long.
const STEP: usize = 1024;

/// A page reader over one column chunk, whatever its writer recorded as dictionary offset. Large
/// pages of texts and blobs come in pieces.
pub fn page_reader<R: ChunkReader + 'static>(
    source: Arc<R>,
    group: &RowGroupMetaData,
    leaf: usize,
) -> Result<Box<dyn PageReader>>
where
    R::T: Send + 'static,
{
    let chunk = group.column(leaf);
    let rows = group.num_rows().max(0) as usize;
    let mended = with_true_start(chunk)?;
    let mended = mended.as_ref().unwrap_or(chunk);
    let whole = SerializedPageReader::new(source.clone(), mended, rows, None)?;
    if may_be_large(chunk) {
        return Ok(Box::new(BoundedPages::new(source, chunk, whole)));
    }
    Ok(Box::new(whole))
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

/// The pages of a chunk that begin within a range of rows, and its dictionary.
struct PagesWithin {
    pages: Box<dyn PageReader>,
    /// First row of the next page.
    next_row: usize,
    end: usize,
}

impl PagesWithin {
    /// Passes over the pages that begin before `rows`, by their headers alone.
    fn new(pages: Box<dyn PageReader>, rows: Range<usize>) -> Result<Self> {
        let mut within = Self {
            pages,
            next_row: 0,
            end: usize::MAX,
        };
        while within.next_row < rows.start {
            if within.peek_next_page()?.is_none() {
                return Err(ends_early(rows.start - within.next_row));
            }
            within.skip_next_page()?;
        }
        within.end = rows.end;
        Ok(within)
    }

    /// Counts the rows of the next page, which is about to be taken; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let Some(page) = self.peek_next_page()? else {
            return Ok(false);
        };
        if !page.is_dict {
            let rows = page.num_rows.or(page.num_levels);
            self.next_row += rows.ok_or_else(|| {
                ParquetError::General("a page header does not say how many rows it has".to_owned())
            })?;
        }
        Ok(true)
    }
}

impl PageReader for PagesWithin {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if self.advance()? {
            self.pages.get_next_page()
        } else {
            Ok(None)
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        let page = self.pages.peek_next_page()?;
        Ok(page.filter(|page| page.is_dict || self.next_row < self.end))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if self.advance()? {
            self.pages.skip_next_page()
        } else {
            Ok(())
        }
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        self.pages.take_deferred_dictionary()
    }
}

impl Iterator for PagesWithin {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn ends_early(missing: usize) -> ParquetError {
    ParquetError::EOF(format!("the column ends {missing} rows early"))
}

/// Reads a leaf in batches; each batch hands out definition levels and values.
pub struct LeafReader<T: DataType> {
    reader: ColumnReaderImpl<T>,
    levels: Vec<i16>,
    values: Vec<T::T>,
    max_level: i16,
    first_row: usize,
    rows_left: usize,
    /// Records read between two looks at how long their values are.
    step: usize,
    /// Whether the pages end with the chunk.
    reaches_end: bool,
}

/// Records of a step of a chunk: as many as make up a batch by the footer's average, since pages
/// stay in memory as long as a value of theirs does.
fn step_of(chunk: &ColumnChunkMetaData) -> usize {
    if !matches!(
        chunk.column_type(),
        PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY
    ) {
        return BATCH;
    }
    let bytes = usize::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let values = usize::try_from(chunk.num_values()).unwrap_or(0).max(1);
    (BATCH_BYTES / (bytes / values).max(1)).clamp(1, STEP)
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
    ) -> Result<Self>
    where
        R::T: Send + 'static,
    {
        Self::open_part(source, metadata, group, leaf, 0..usize::MAX)
    }

    /// Opens the pages of a leaf that begin within `rows` of one row group. Parts that make up
    /// all rows read every page once.
    pub fn open_part<R: ChunkReader + 'static>(
        source: Arc<R>,
        metadata: &ParquetMetaData,
        group: usize,
        leaf: usize,
        rows: Range<usize>,
    ) -> Result<Self>
    where
        R::T: Send + 'static,
    {
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
        let group_rows = row_group.num_rows().max(0) as usize;
        let reaches_end = rows.end >= group_rows;
        let mut first_row = 0;
        let mut pages = page_reader(source, row_group, leaf)?;
        if rows.start > 0 || !reaches_end {
            let within = PagesWithin::new(pages, rows)?;
            first_row = within.next_row;
            pages = Box::new(within);
        }
        let reader = get_typed_column_reader::<T>(get_column_reader(descriptor.clone(), pages));
        Ok(Self {
            reader,
            levels: Vec::new(),
            values: Vec::new(),
            max_level: descriptor.max_def_level(),
            first_row,
            rows_left: group_rows.saturating_sub(first_row),
            step: step_of(row_group.column(leaf)),
            reaches_end,
        })
    }

    /// The row of the row group that the first batch begins with.
    pub fn first_row(&self) -> usize {
        self.first_row
    }

    /// The next batch, or `None` after the last row (of the part). Fewer rows than the footer says, or more,
    /// is an error: it would shift all that follows.
    pub fn next_batch(&mut self) -> Result<Option<LeafBatch<'_, T::T>>> {
        self.levels.clear();
        self.values.clear();
        if self.rows_left == 0 {
            return Ok(None);
        }
        let wanted = self.rows_left.min(BATCH);
        let (mut rows, mut values, mut level_count, mut bytes) = (0, 0, 0, 0);
        while rows < wanted && bytes < BATCH_BYTES {
            let levels = (self.max_level > 0).then_some(&mut self.levels);
            let step = self.step.min(wanted - rows);
            let (more_rows, more_values, more_levels) =
                self.reader
                    .read_records(step, levels, None, &mut self.values)?;
            if more_rows == 0 {
                break;
            }
            let read = &self.values[values..];
            bytes += read
                .iter()
                .map(|value| value.as_bytes().len())
                .sum::<usize>();
            rows += more_rows;
            values += more_values;
            level_count += more_levels;
        }
        if rows == 0 {
            if self.reaches_end {
                return Err(ends_early(self.rows_left));
            }
            return Ok(None);
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
            return Err(ends_early(rows - skipped));
        }
        self.rows_left -= rows.min(self.rows_left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, LargeStringArray, RecordBatch};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::data_type::ByteArrayType;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::{WriterProperties, WriterVersion};

    use super::*;

    const ROWS: usize = 1000;

    /// Texts, some null, in pages of 64 rows.
    fn file(version: WriterVersion, dictionary: bool) -> Bytes {
        let texts: LargeStringArray = (0..ROWS)
            .map(|row| (row % 7 != 0).then(|| format!("text {}", row % 90)))
            .collect();
        let batch = RecordBatch::try_from_iter([("t", Arc::new(texts) as Arc<dyn Array>)]);
        let batch = batch.unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(dictionary)
            .set_compression(Compression::LZ4_RAW)
            .set_data_page_row_count_limit(64)
            .set_write_batch_size(64)
            .build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties));
        let writer_of_file = writer.as_mut().unwrap();
        writer_of_file.write(&batch).unwrap();
        Bytes::from(writer.unwrap().into_inner().unwrap())
    }

    fn read(file: &Bytes, rows: Range<usize>) -> Vec<(usize, Option<String>)> {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(file).unwrap();
        let source = Arc::new(file.clone());
        let reader = LeafReader::<ByteArrayType>::open_part(source, &metadata, 0, 0, rows);
        let mut reader = reader.unwrap();
        let (mut found, mut base) = (Vec::new(), reader.first_row());
        while let Some(batch) = reader.next_batch().unwrap() {
            batch.for_each(|row, value| {
                let text = value.map(|value| String::from_utf8(value.data().to_vec()).unwrap());
                found.push((base + row, text));
            });
            base += batch.rows;
        }
        found
    }

    #[test]
    fn parts_make_up_the_whole_with_every_row_in_its_place() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let file = file(version, dictionary);
                let whole = read(&file, 0..usize::MAX);
                assert_eq!(whole.len(), ROWS);
                assert_eq!(whole[90], (90, Some("text 0".to_owned())));
                // More parts than pages, too: some have no page.
                for count in [1, 2, 3, 7, 40] {
                    let bounds = |part: usize| ROWS * part / count..ROWS * (part + 1) / count;
                    let parts: Vec<_> = (0..count).map(|part| read(&file, bounds(part))).collect();
                    assert_eq!(parts.concat(), whole, "{version:?}, {dictionary}, {count}");
                    let with_rows = parts.iter().filter(|part| !part.is_empty()).count();
                    assert_eq!(with_rows, count.min(ROWS.div_ceil(64)), "{count}");
                }
            }
        }
    }

    #[test]
    fn a_batch_of_long_values_is_short() {
        let long = "x".repeat(200 << 10);
        let texts: LargeStringArray = (0..ROWS)
            .map(|row| Some(if row < 900 { "short" } else { &long }))
            .collect();
        let batch = RecordBatch::try_from_iter([("t", Arc::new(texts) as Arc<dyn Array>)]);
        let batch = batch.unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let file = Bytes::from(writer.into_inner().unwrap());
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .unwrap();
        let reader = LeafReader::<ByteArrayType>::open(Arc::new(file), &metadata, 0, 0);
        let (mut reader, mut rows) = (reader.unwrap(), 0);
        while let Some(batch) = reader.next_batch().unwrap() {
            let bytes: usize = batch.values.iter().map(|value| value.data().len()).sum();
            // The last step may pass the bound: 51 values by the average of 20 KiB.
            assert!(bytes <= BATCH_BYTES + 51 * long.len(), "{bytes}");
            rows += batch.rows;
        }
        assert_eq!(rows, ROWS);
    }

    #[test]
    fn a_part_beyond_the_end_of_a_short_column_is_an_error() {
        let file = file(WriterVersion::PARQUET_1_0, false);
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .unwrap();
        let group = metadata.row_group(0);
        let pages = page_reader(Arc::new(file.clone()), group, 0).unwrap();
        let error = PagesWithin::new(pages, ROWS + 50..ROWS + 60).err();
        assert!(error.unwrap().to_string().contains("ends 50 rows early"));
    }
}
