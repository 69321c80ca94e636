//! Writes a column anew as it is: the levels and values of each leaf, as Parquet's column reader
//! hands them out, into Parquet's column writer.
//!
//! No other type system lies between, so that every physical and logical type passes. A leaf is
//! read and written page by page: what is held is what the file will hold of it.

use bytes::Bytes;
use parquet::basic::Type as PhysicalType;
use parquet::column::writer::{ColumnCloseResult, get_column_writer, get_typed_column_writer};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};

use crate::leaf::page_reader;
use crate::levels::{Counter, Presence, has_optional_fields};
use crate::parquet_file::ParquetFile;
use crate::records::{LeafVisitor, Records, visit};

/// Bytes of the largest dictionary that is written.
const LARGEST_DICTIONARY: usize = 64 << 20;

/// A leaf of one row group, encoded.
#[derive(Debug)]
pub struct Chunk {
    /// Its pages.
    pub bytes: Bytes,
    /// What the footer says of them.
    pub close: ColumnCloseResult,
}

/// A column, encoded.
#[derive(Debug)]
pub struct Recoded {
    /// For each leaf, its chunks in the order of row groups.
    pub leaves: Vec<std::vec::IntoIter<Chunk>>,
    /// What was counted on the way.
    pub presence: Presence,
}

/// Encodes a top-level column into row groups of `group_rows` rows. `present` puts a struct of
/// nulls where a row's struct is null and may be one.
///
/// # Errors
/// If a leaf cannot be read, or has not as many records as its file has rows.
pub fn column(
    file: &ParquetFile,
    root: usize,
    group_rows: &[usize],
    properties: &WriterPropertiesPtr,
    present: bool,
) -> Result<Recoded> {
    let present = present && has_optional_fields(&file.roots()[root]);
    let mut counter = Counter::new(file, root);
    let mut leaves = Vec::new();
    for leaf in file.leaves_of(root) {
        let copy = Copy {
            leaf,
            group_rows,
            properties,
            present,
            counter: &mut counter,
        };
        leaves.push(visit(file, leaf, copy)?.into_iter());
    }
    Ok(Recoded {
        leaves,
        presence: counter.presence(),
    })
}

/// Bytes that a dictionary of a leaf's copy may take, if the leaf has one: values that repeat are to
/// be stored once in its copy, too.
///
/// # Errors
/// If a page cannot be read.
pub fn dictionary_limit(file: &ParquetFile, leaf: usize) -> Result<Option<usize>> {
    let descriptor = file.metadata.file_metadata().schema_descr().column(leaf);
    let (mut largest, mut any) = (0, false);
    if !matches!(
        descriptor.physical_type(),
        PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY
    ) {
        return Ok(None);
    }
    for (group, _) in file.groups() {
        let row_group = file.metadata.row_group(group);
        let chunk = row_group.column(leaf);
        // A page header costs a codec to read: most chunks say in the footer that they have none.
        if chunk.dictionary_page_offset().is_none() {
            continue;
        }
        let mut pages = page_reader(file.bytes.clone(), row_group, leaf)?;
        if pages.peek_next_page()?.is_some_and(|page| page.is_dict)
            && let Some(page) = pages.get_next_page()?
        {
            any = true;
            largest = largest.max(page.buffer().len());
        }
    }
    // Row groups are cut elsewhere: one of the copy may hold values of two.
    Ok(any.then(|| largest.saturating_mul(2).clamp(1 << 20, LARGEST_DICTIONARY)))
}

struct Copy<'a> {
    leaf: usize,
    group_rows: &'a [usize],
    properties: &'a WriterPropertiesPtr,
    present: bool,
    counter: &'a mut Counter,
}

impl LeafVisitor for Copy<'_> {
    type Output = Vec<Chunk>;

    fn visit<T: DataType>(self, mut records: Records<'_, T>) -> Result<Vec<Chunk>> {
        let mut chunks = Vec::with_capacity(self.group_rows.len());
        let mut row = 0;
        for &rows in self.group_rows {
            let mut sink = TrackedWrite::new(Vec::new());
            let pages = Box::new(SerializedPageWriter::new(&mut sink));
            let writer = get_column_writer(records.descriptor(), self.properties.clone(), pages);
            let mut writer = get_typed_column_writer::<T>(writer);
            let end = row + rows;
            while row < end {
                let Some(batch) = records.next(end - row)? else {
                    return Err(ParquetError::EOF(format!(
                        "it ends {} rows early",
                        end - row
                    )));
                };
                row = self.counter.see(
                    self.leaf,
                    row,
                    batch.records,
                    batch.definition.as_deref(),
                    batch.repetition,
                );
                let definition = batch.definition.map(|levels| {
                    if self.present {
                        levels.iter_mut().for_each(|level| *level = (*level).max(1));
                    }
                    &*levels
                });
                writer.write_batch(batch.values, definition, batch.repetition)?;
            }
            let close = writer.close()?;
            chunks.push(Chunk {
                bytes: sink.into_inner()?.into(),
                close,
            });
        }
        if records.next(1)?.is_some() {
            return Err(ParquetError::General(format!(
                "it has more than {row} rows"
            )));
        }
        Ok(chunks)
    }
}
