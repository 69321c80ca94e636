//! Decodes a top-level column of a file into Arrow arrays, in batches of bounded bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, LargeStringBuilder};
use arrow::datatypes::{DataType as Arrow, FieldRef, Fields};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups};
use parquet::arrow::{
    FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema,
};
use parquet::basic::Type as PhysicalType;
use parquet::column::page::{PageIterator, PageReader};
use parquet::data_type::ByteArrayType;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;

use crate::column_plan::natural_type;
use crate::error::ShardError;
use crate::leaf::{LeafReader, page_reader};
use crate::one_column::{Texts, alone};
use crate::parquet_file::ParquetFile;
use crate::unfit::Unfit;

/// Bytes of values that a batch should hold. Single values may be larger.
pub const BATCH_BYTES: usize = 4 << 20;
/// Rows of a batch, at most.
const BATCH_ROWS: usize = 4096;

/// Rows that make up a batch of `batch` bytes, if `rows` rows of `bytes` bytes are alike.
pub fn rows_at_once(rows: i64, bytes: i64, batch: usize, most: usize) -> usize {
    let batch = i64::try_from(batch).unwrap_or(i64::MAX);
    let rows = rows.max(0).saturating_mul(batch) / bytes.max(1);
    usize::try_from(rows).unwrap_or(most).clamp(1, most)
}

/// The values of a column from its fetched chunks, in the order of rows. Texts and blobs come
/// with 64-bit offsets.
pub struct Decoder<'a> {
    file: &'a ParquetFile,
    root: usize,
    metadata: Arc<ParquetMetaData>,
    levels: FieldLevels,
    batch_bytes: usize,
    /// Whether texts that are none come out null.
    is_lenient: bool,
    /// Row groups to come: number and rows.
    groups: std::vec::IntoIter<(usize, usize)>,
    open: Option<OpenGroup>,
    row: usize,
}

struct OpenGroup {
    number: usize,
    expected: usize,
    seen: usize,
    rows: Rows,
}

enum Rows {
    Arrow(ParquetRecordBatchReader),
    /// Texts of which some are none, and why Arrow did not read them.
    Texts(Box<LeafReader<ByteArrayType>>, Option<ShardError>),
}

impl<'a> Decoder<'a> {
    /// Opens the top-level column `root`.
    ///
    /// # Errors
    /// If its type is none that Arrow knows.
    pub fn open(file: &'a ParquetFile, root: usize) -> Result<Self, ShardError> {
        let malformed = |error: &dyn std::fmt::Display| malformed(file, root, error);
        let metadata = alone(file, root, Texts::Checked).map_err(|error| malformed(&error))?;
        Self::of(file, root, metadata)
    }

    fn of(
        file: &'a ParquetFile,
        root: usize,
        metadata: Arc<ParquetMetaData>,
    ) -> Result<Self, ShardError> {
        let malformed = |error: &dyn std::fmt::Display| malformed(file, root, error);
        let schema = metadata.file_metadata().schema_descr();
        let natural = parquet_to_arrow_schema(schema, None).map_err(|error| malformed(&error))?;
        let wide: Fields = natural.fields().iter().map(widened).collect();
        let levels = parquet_to_arrow_field_levels(schema, ProjectionMask::all(), Some(&wide))
            .map_err(|error| malformed(&error))?;
        Ok(Self {
            file,
            root,
            metadata,
            levels,
            batch_bytes: BATCH_BYTES,
            is_lenient: false,
            groups: file.groups().collect::<Vec<_>>().into_iter(),
            open: None,
            row: 0,
        })
    }

    /// Texts that are none are to come out null, and batches to hold `bytes` bytes. Those within
    /// lists and structs come as blobs, whatever they are: who needs texts finds out which rows
    /// have none.
    ///
    /// # Errors
    /// As [`Decoder::open`].
    pub fn lenient(file: &'a ParquetFile, root: usize, bytes: usize) -> Result<Self, ShardError> {
        let is_text = natural_type(file, root)? == Arrow::Utf8;
        let texts = if is_text {
            Texts::Checked
        } else {
            Texts::AsBlobs
        };
        let metadata = alone(file, root, texts).map_err(|error| malformed(file, root, &error))?;
        Ok(Self {
            is_lenient: is_text,
            batch_bytes: bytes,
            ..Self::of(file, root, metadata)?
        })
    }

    /// The next values, at least one; `None` after the last. Notes rows whose text is none.
    ///
    /// # Errors
    /// If a page cannot be read, or a row group has not as many rows as the footer says: one more
    /// or less would shift those of the next.
    pub fn next(&mut self, unfit: &mut Unfit) -> Result<Option<ArrayRef>, ShardError> {
        loop {
            let Some(mut group) = self.open.take() else {
                let Some((number, expected)) = self.groups.next() else {
                    return Ok(None);
                };
                self.open = Some(OpenGroup {
                    number,
                    expected,
                    seen: 0,
                    rows: Rows::Arrow(self.open_group(number)?),
                });
                continue;
            };
            let batch = match &mut group.rows {
                Rows::Arrow(reader) => match reader.next().transpose() {
                    Ok(batch) => batch.map(|batch| batch.column(0).clone()),
                    Err(error) => {
                        let error = malformed(self.file, self.root, &error);
                        group.rows = self.texts(&group, error)?;
                        self.open = Some(group);
                        continue;
                    }
                },
                Rows::Texts(reader, error) => match texts(reader, self.row, unfit) {
                    Ok(batch) => batch,
                    // What is wrong with more than its texts was said before.
                    Err(now) => {
                        let now = malformed(self.file, self.root, &now);
                        return Err(error.take().unwrap_or(now));
                    }
                },
            };
            group.seen += batch.as_ref().map_or(0, Array::len);
            let is_over = group.seen > group.expected;
            if is_over || batch.is_none() && group.seen < group.expected {
                let reason = format_args!(
                    "row group {}: {}{} rows decoded, the footer says {}",
                    group.number,
                    if is_over { "at least " } else { "" },
                    group.seen,
                    group.expected
                );
                return Err(malformed(self.file, self.root, &reason));
            }
            let Some(batch) = batch else { continue };
            self.row += batch.len();
            self.open = Some(group);
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }

    /// Sees to it that there are no more values.
    ///
    /// # Errors
    /// If there are, or as [`Decoder::next`].
    pub fn expect_end(&mut self) -> Result<(), ShardError> {
        match self.next(&mut Unfit::default())? {
            None => Ok(()),
            Some(_) => {
                let reason = format_args!("more than {} rows", self.file.num_rows());
                Err(malformed(self.file, self.root, &reason))
            }
        }
    }

    /// Row of the file that the next batch begins with.
    pub fn row(&self) -> usize {
        self.row
    }

    fn open_group(&self, number: usize) -> Result<ParquetRecordBatchReader, ShardError> {
        let malformed = |error: &dyn std::fmt::Display| malformed(self.file, self.root, error);
        let group = self.file.metadata.row_group(number);
        let mut bytes = 0_i64;
        for leaf in self.file.leaves_of(self.root) {
            let chunk = group.column(leaf);
            let longest = longest_in_dictionary(self.file, number, leaf)
                .map_err(|error| malformed(&error))?;
            // Any row may have the longest value of a dictionary, which is stored but once.
            let if_all_have_it = chunk.num_values().saturating_mul(longest);
            bytes = bytes.saturating_add(chunk.uncompressed_size().max(if_all_have_it));
        }
        let rows = rows_at_once(group.num_rows(), bytes, self.batch_bytes, BATCH_ROWS);
        let group = OneGroup {
            source: self.file.bytes.clone(),
            metadata: &self.metadata,
            number,
        };
        ParquetRecordBatchReader::try_new_with_row_groups(&self.levels, &group, rows, None)
            .map_err(|error| malformed(&error))
    }

    /// Reads the rest of a row group that Arrow does not read text by text.
    fn texts(&self, group: &OpenGroup, error: ShardError) -> Result<Rows, ShardError> {
        if !self.is_lenient {
            return Err(error);
        }
        let leaf = self.file.leaves_of(self.root).start;
        let (source, metadata) = (self.file.bytes.clone(), &self.file.metadata);
        let opened = LeafReader::open(source, metadata, group.number, leaf);
        let skipped = opened.and_then(|mut reader| {
            reader.skip(group.seen)?;
            Ok(reader)
        });
        match skipped {
            Ok(reader) => Ok(Rows::Texts(Box::new(reader), Some(error))),
            Err(_) => Err(error),
        }
    }
}

/// A row group whose pages are read as [`page_reader`] does.
pub struct OneGroup<'a, R> {
    /// Its bytes.
    pub source: Arc<R>,
    /// The footer.
    pub metadata: &'a ParquetMetaData,
    /// Its number.
    pub number: usize,
}

impl<R: ChunkReader + 'static> RowGroups for OneGroup<'_, R>
where
    R::T: Send + 'static,
{
    fn num_rows(&self) -> usize {
        let rows = self.metadata.row_group(self.number).num_rows();
        usize::try_from(rows).unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> parquet::errors::Result<Box<dyn PageIterator>> {
        let group = self.metadata.row_group(self.number);
        let pages = page_reader(self.source.clone(), group, leaf);
        Ok(Box::new(OneChunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.number)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

type Pages = parquet::errors::Result<Box<dyn PageReader>>;

struct OneChunk(Option<Pages>);

impl Iterator for OneChunk {
    type Item = Pages;

    fn next(&mut self) -> Option<Pages> {
        self.0.take()
    }
}

impl PageIterator for OneChunk {}

fn malformed(file: &ParquetFile, root: usize, error: &dyn std::fmt::Display) -> ShardError {
    let name = file.roots()[root].name();
    ShardError::malformed(&file.uri, format!("column {name:?}: {error}"))
}

/// The next texts, those that are none left empty; the first is that of row `first_row`.
fn texts(
    reader: &mut LeafReader<ByteArrayType>,
    first_row: usize,
    unfit: &mut Unfit,
) -> parquet::errors::Result<Option<ArrayRef>> {
    let Some(batch) = reader.next_batch()? else {
        return Ok(None);
    };
    let mut texts = LargeStringBuilder::new();
    batch.for_each(|row, value| {
        let text = value.and_then(|value| std::str::from_utf8(value.data()).ok());
        if value.is_some() && text.is_none() {
            unfit.add((first_row + row) as u32, "the text is not UTF-8");
        }
        texts.append_option(text);
    });
    Ok(Some(Arc::new(texts.finish())))
}

/// Bytes of the longest value in the dictionary of a chunk, if it has one.
fn longest_in_dictionary(
    file: &ParquetFile,
    group: usize,
    leaf: usize,
) -> parquet::errors::Result<i64> {
    let row_group = file.metadata.row_group(group);
    if row_group.column(leaf).column_type() != PhysicalType::BYTE_ARRAY {
        return Ok(0);
    }
    let mut pages = page_reader(file.bytes.clone(), row_group, leaf)?;
    if !pages.peek_next_page()?.is_some_and(|page| page.is_dict) {
        return Ok(0);
    }
    let Some(page) = pages.get_next_page()? else {
        return Ok(0);
    };
    let mut rest = &page.buffer()[..];
    let mut longest = 0;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(i64::from(length));
        // Whoever decodes the values says what is wrong with it.
        rest = after.get(length as usize..).unwrap_or_default();
    }
    Ok(longest)
}

fn widened(field: &FieldRef) -> FieldRef {
    let field = field.as_ref().clone();
    let wide = widen(field.data_type());
    Arc::new(field.with_data_type(wide))
}

/// The same type with 64-bit offsets for texts and blobs.
fn widen(data_type: &Arrow) -> Arrow {
    match data_type {
        Arrow::Utf8 => Arrow::LargeUtf8,
        Arrow::Binary => Arrow::LargeBinary,
        Arrow::Struct(fields) => Arrow::Struct(fields.iter().map(widened).collect()),
        Arrow::List(item) => Arrow::List(widened(item)),
        Arrow::Map(entries, sorted) => Arrow::Map(widened(entries), *sorted),
        other => other.clone(),
    }
}
