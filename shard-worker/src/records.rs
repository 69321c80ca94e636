//! Reads a leaf of a column record by record: its levels, and its values as Parquet stores them.
//!
//! What a value means is of no concern here, so that every physical and logical type passes. A
//! row group has to hold as many records as the footer says: one more or less would shift all
//! rows that follow.

use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type, Int96Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::ColumnDescPtr;

use crate::leaf::{BATCH, page_reader};
use crate::parquet_file::ParquetFile;

/// Bytes of values that a batch should hold. Single values may be larger.
const BATCH_BYTES: usize = 1 << 20;
/// Levels that a batch should hold. Single records may have more.
const BATCH_LEVELS: usize = 64 << 10;

/// Whole records of a leaf.
pub struct Records<'a, T: DataType> {
    file: &'a ParquetFile,
    leaf: usize,
    descriptor: ColumnDescPtr,
    /// Row groups to come: number and rows.
    groups: std::vec::IntoIter<(usize, usize)>,
    open: Option<OpenGroup<T>>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
    values: Vec<T::T>,
}

struct OpenGroup<T: DataType> {
    number: usize,
    reader: ColumnReaderImpl<T>,
    rows: usize,
    left: usize,
    /// Records to read at a time.
    batch: usize,
}

/// Some records: at least one.
pub struct RecordBatch<'a, V> {
    /// How many.
    pub records: usize,
    /// Definition levels; none where a value can't be missing.
    pub definition: Option<&'a mut [i16]>,
    /// Repetition levels; none outside of lists.
    pub repetition: Option<&'a [i16]>,
    /// The values that are there.
    pub values: &'a [V],
}

impl<'a, T: DataType> Records<'a, T> {
    /// The records of a leaf, whose chunks must have been fetched and whose values must be `T`s.
    pub fn new(file: &'a ParquetFile, leaf: usize) -> Self {
        let groups: Vec<_> = file.groups().collect();
        Self {
            file,
            leaf,
            descriptor: file.metadata.file_metadata().schema_descr().column(leaf),
            groups: groups.into_iter(),
            open: None,
            definition: Vec::new(),
            repetition: Vec::new(),
            values: Vec::new(),
        }
    }

    /// What the schema says of the leaf.
    pub fn descriptor(&self) -> ColumnDescPtr {
        self.descriptor.clone()
    }

    /// The next records of the file, at most `limit`; `None` after the last.
    ///
    /// # Errors
    /// If a page cannot be read, or a row group has not as many records as it has rows.
    pub fn next(&mut self, limit: usize) -> Result<Option<RecordBatch<'_, T::T>>> {
        if self.open.is_none() {
            let Some((number, rows)) = self.groups.next() else {
                return Ok(None);
            };
            self.open = Some(self.open_group(number, rows)?);
        }
        let Some(group) = &mut self.open else {
            return Ok(None);
        };
        self.definition.clear();
        self.repetition.clear();
        self.values.clear();
        let (max_definition, max_repetition) = (
            self.descriptor.max_def_level(),
            self.descriptor.max_rep_level(),
        );
        let has_definition = max_definition > 0;
        let has_repetition = max_repetition > 0;
        let (records, values, levels) = group.reader.read_records(
            limit.min(group.left).min(group.batch).max(1),
            has_definition.then_some(&mut self.definition),
            has_repetition.then_some(&mut self.repetition),
            &mut self.values,
        )?;
        let (number, rows) = (group.number, group.rows);
        if records == 0 {
            let found = rows - group.left;
            return Err(miscounted(number, &found.to_string(), rows));
        }
        group.left -= records;
        // Corrupt levels use all the bits that the highest one needs.
        let out_of_range =
            |levels: &[i16], highest| levels.iter().any(|level| !(0..=highest).contains(level));
        let lists_begin = self.repetition.first().is_none_or(|&level| level == 0);
        if out_of_range(&self.definition, max_definition)
            || out_of_range(&self.repetition, max_repetition)
            || !lists_begin
            || values != self.values.len()
            || !has_repetition && levels != records
        {
            return Err(ParquetError::General(format!(
                "row group {number}: its levels make no records"
            )));
        }
        if group.left == 0 {
            expect_end(group, has_definition, has_repetition)?;
            self.open = None;
        }
        Ok(Some(RecordBatch {
            records,
            definition: has_definition.then_some(&mut self.definition[..]),
            repetition: has_repetition.then_some(&self.repetition[..]),
            values: &self.values,
        }))
    }

    /// Goes on with the next row group.
    pub fn leave_group(&mut self) {
        self.open = None;
    }

    fn open_group(&self, number: usize, rows: usize) -> Result<OpenGroup<T>> {
        let row_group = self.file.metadata.row_group(number);
        let chunk = row_group.column(self.leaf);
        let pages = page_reader(self.file.bytes.clone(), row_group, self.leaf)?;
        let reader = get_column_reader(self.descriptor.clone(), pages);
        let per_row = |count: i64| {
            usize::try_from(count)
                .unwrap_or(0)
                .div_ceil(rows.max(1))
                .max(1)
        };
        let batch = (BATCH_BYTES / per_row(chunk.uncompressed_size()))
            .min(BATCH_LEVELS / per_row(chunk.num_values()))
            .clamp(1, BATCH);
        Ok(OpenGroup {
            number,
            reader: get_typed_column_reader(reader),
            rows,
            left: rows,
            batch,
        })
    }
}

fn expect_end<T: DataType>(
    group: &mut OpenGroup<T>,
    has_definition: bool,
    has_repetition: bool,
) -> Result<()> {
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let (records, _, levels) = group.reader.read_records(
        1,
        has_definition.then_some(&mut definition),
        has_repetition.then_some(&mut repetition),
        &mut values,
    )?;
    if records > 0 || levels > 0 {
        return Err(miscounted(group.number, "more", group.rows));
    }
    Ok(())
}

fn miscounted(group: usize, records: &str, rows: usize) -> ParquetError {
    ParquetError::General(format!(
        "row group {group}: {records} records for {rows} rows"
    ))
}

/// Something to do with a leaf, whatever the type of its values.
pub trait LeafVisitor {
    /// What it leads to.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// If the leaf cannot be read.
    fn visit<T: DataType>(self, records: Records<'_, T>) -> Result<Self::Output>;
}

/// Opens a leaf and does something with it.
///
/// # Errors
/// If the visitor fails.
pub fn visit<V: LeafVisitor>(file: &ParquetFile, leaf: usize, visitor: V) -> Result<V::Output> {
    let descriptor = file.metadata.file_metadata().schema_descr().column(leaf);
    match descriptor.physical_type() {
        PhysicalType::BOOLEAN => visitor.visit(Records::<BoolType>::new(file, leaf)),
        PhysicalType::INT32 => visitor.visit(Records::<Int32Type>::new(file, leaf)),
        PhysicalType::INT64 => visitor.visit(Records::<Int64Type>::new(file, leaf)),
        PhysicalType::INT96 => visitor.visit(Records::<Int96Type>::new(file, leaf)),
        PhysicalType::FLOAT => visitor.visit(Records::<FloatType>::new(file, leaf)),
        PhysicalType::DOUBLE => visitor.visit(Records::<DoubleType>::new(file, leaf)),
        PhysicalType::BYTE_ARRAY => visitor.visit(Records::<ByteArrayType>::new(file, leaf)),
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            visitor.visit(Records::<FixedLenByteArrayType>::new(file, leaf))
        }
    }
}
