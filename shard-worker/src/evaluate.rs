//! Values of the columns that are not copied as they are.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StructArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType as Arrow, FieldRef};
use arrow::error::ArrowError;

use crate::arrow_types::{empty_array, is_missing};
use crate::column_plan::{ShardFiles, Value};
use crate::decode::Decoder;
use crate::error::ShardError;
use crate::lookup::NONE;
use crate::parquet_file::ParquetFile;
use crate::unfit::{Unfit, adapt_or_empty};

/// What the lookups found, as one shard sees it.
#[derive(Debug, Clone, Copy)]
pub struct ShardFound<'a> {
    /// For each row of the shard, the row of `columns` or [`NONE`].
    pub rows: &'a [u32],
    /// Found values.
    pub columns: &'a [ArrayRef],
    /// For each column, its rows whose value did not fit.
    pub unfit: &'a [Unfit],
}

/// Values that do not come from a shard's files.
#[derive(Debug, Clone, Copy)]
pub struct Produced<'a> {
    /// The row that what was found begins with.
    pub first_row: usize,
    /// What each lookup found.
    pub found: &'a [ShardFound<'a>],
    /// What filters say: columns of each step that has some.
    pub computed: &'a [Vec<ArrayRef>],
    /// Where rows are noted whose value does not fit what is declared.
    pub unfit: &'a RefCell<Unfit>,
}

/// The values of a column of a declared type, evaluated from the first row of a shard to the last.
pub struct Values<'a> {
    files: &'a ShardFiles,
    declared: &'a FieldRef,
    source: Source<'a>,
}

enum Source<'a> {
    Empty,
    Lookup {
        lookup: usize,
        column: usize,
    },
    Computed {
        step: usize,
        column: usize,
    },
    File(Box<FileValues<'a>>),
    FirstPresent {
        candidates: Vec<Values<'a>>,
        blank_is_missing: bool,
    },
}

struct FileValues<'a> {
    file: &'a ParquetFile,
    decoder: Decoder<'a>,
    /// Decoded values that nobody has taken yet.
    pending: Option<ArrayRef>,
    unfit: Unfit,
}

impl<'a> Values<'a> {
    /// Opens a column; what is decoded of a file comes in batches of `batch_bytes`.
    ///
    /// # Errors
    /// If a column of a file cannot be read.
    pub fn open(
        value: &Value,
        declared: &'a FieldRef,
        files: &'a ShardFiles,
        batch_bytes: usize,
    ) -> Result<Self, ShardError> {
        let open = |value| Self::open(value, declared, files, batch_bytes);
        let source = match value {
            Value::Empty => Source::Empty,
            &Value::Lookup { lookup, column } => Source::Lookup { lookup, column },
            &Value::Computed { step, column } => Source::Computed { step, column },
            Value::File { file, root } => {
                let file = files
                    .get(*file)
                    .ok_or_else(|| failed(files, declared, &"its file is missing"))?;
                Source::File(Box::new(FileValues {
                    file,
                    decoder: Decoder::lenient(file, *root, batch_bytes)?,
                    pending: None,
                    unfit: Unfit::default(),
                }))
            }
            Value::FirstPresent {
                candidates,
                blank_is_missing,
            } => Source::FirstPresent {
                candidates: candidates.iter().map(open).collect::<Result<_, _>>()?,
                blank_is_missing: *blank_is_missing,
            },
        };
        Ok(Self {
            files,
            declared,
            source,
        })
    }

    /// How many of the next `most` rows can be had at once: at least one.
    ///
    /// # Errors
    /// If a column of a file cannot be read.
    pub fn ready(&mut self, most: usize) -> Result<usize, ShardError> {
        match &mut self.source {
            Source::Empty | Source::Lookup { .. } | Source::Computed { .. } => Ok(most),
            Source::File(file) => file.ready(self.declared, most),
            Source::FirstPresent { candidates, .. } => {
                let mut candidates = candidates.iter_mut();
                candidates.try_fold(most, |most, candidate| candidate.ready(most))
            }
        }
    }

    /// About how many bytes evaluating a row takes that are not there yet.
    pub fn bytes_of(&self, row: usize, produced: Produced<'_>) -> u64 {
        match &self.source {
            Source::Empty | Source::File(_) | Source::Computed { .. } => 0,
            Source::Lookup { lookup, column } => {
                let found = produced.found[*lookup];
                match found.rows[row - produced.first_row] {
                    NONE => 0,
                    row => bytes_of(&found.columns[*column], row as usize),
                }
            }
            Source::FirstPresent { candidates, .. } => candidates
                .iter()
                .map(|candidate| candidate.bytes_of(row, produced))
                .fold(0, u64::max),
        }
    }

    /// Evaluates the next rows, which must be [ready](Values::ready).
    ///
    /// # Errors
    /// If values cannot be brought into the declared type.
    pub fn take(
        &mut self,
        rows: Range<usize>,
        produced: Produced<'_>,
    ) -> Result<ArrayRef, ShardError> {
        let target = self.declared.data_type();
        match &mut self.source {
            Source::Empty => Ok(empty_array(target, rows.len())),
            Source::Lookup { lookup, column } => {
                let found = produced.found[*lookup];
                let first = produced.first_row;
                let places = &found.rows[rows.start - first..rows.end - first];
                if let Some(unfit) = found.unfit.get(*column).filter(|unfit| unfit.is_any()) {
                    let mut noted = produced.unfit.borrow_mut();
                    let bad = places
                        .iter()
                        .zip(rows)
                        .filter(|(place, _)| unfit.has(**place));
                    bad.for_each(|(_, row)| noted.add(row as u32, ""));
                }
                let indices =
                    UInt32Array::from_iter(places.iter().map(|&row| (row != NONE).then_some(row)));
                take_present(&found.columns[*column], &indices)
                    .map_err(|error| failed(self.files, self.declared, &error))
            }
            Source::Computed { step, column } => {
                Ok(produced.computed[*step][*column].slice(rows.start, rows.len()))
            }
            Source::File(file) => file.take(self.declared, rows, produced),
            Source::FirstPresent {
                candidates,
                blank_is_missing,
            } => {
                let arrays = candidates
                    .iter_mut()
                    .map(|candidate| candidate.take(rows.clone(), produced))
                    .collect::<Result<Vec<_>, _>>()?;
                first_present(arrays, *blank_is_missing, self.declared, rows.len())
                    .map_err(|error| failed(self.files, self.declared, &error))
            }
        }
    }
}

fn failed(files: &ShardFiles, declared: &FieldRef, error: &dyn std::fmt::Display) -> ShardError {
    let reason = format!("column {:?}: {error}", declared.name());
    ShardError::schema(&files.main.uri, reason)
}

impl FileValues<'_> {
    fn ready(&mut self, declared: &FieldRef, most: usize) -> Result<usize, ShardError> {
        if self.pending.is_none() {
            let row = self.decoder.row() as u32;
            let Some(batch) = self.decoder.next(&mut self.unfit)? else {
                let reason = format!("column {:?} ends at row {row}", declared.name());
                return Err(ShardError::malformed(&self.file.uri, reason));
            };
            let adapted = adapt_or_empty(&batch, declared.data_type(), row, &mut self.unfit);
            self.pending = Some(adapted.map_err(|error| {
                let reason = format!("column {:?}: {error}", declared.name());
                ShardError::schema(&self.file.uri, reason)
            })?);
        }
        Ok(self.pending.as_ref().map_or(0, Array::len).min(most))
    }

    fn take(
        &mut self,
        declared: &FieldRef,
        rows: Range<usize>,
        produced: Produced<'_>,
    ) -> Result<ArrayRef, ShardError> {
        self.ready(declared, rows.len())?;
        let pending = self.pending.take();
        let pending = pending.unwrap_or_else(|| empty_array(declared.data_type(), 0));
        let taken = pending.slice(0, rows.len());
        if rows.len() < pending.len() {
            self.pending = Some(pending.slice(rows.len(), pending.len() - rows.len()));
        }
        if rows.end == self.file.num_rows() {
            // What a row group has beyond its rows is found out only when it is asked for.
            self.decoder.expect_end()?;
            for (row, reason) in self.unfit.first() {
                let (uri, name) = (&self.file.uri, declared.name());
                tracing::warn!(
                    "{uri}, row {row}, column {name:?}: {reason}; the row is left empty"
                );
            }
            let mut noted = produced.unfit.borrow_mut();
            self.unfit.rows().for_each(|row| noted.add(row, ""));
        }
        Ok(taken)
    }
}

/// For each row the value of the first candidate that has one.
fn first_present(
    mut arrays: Vec<ArrayRef>,
    blank_is_missing: bool,
    declared: &FieldRef,
    rows: usize,
) -> Result<ArrayRef, ArrowError> {
    arrays.push(empty_array(declared.data_type(), 1));
    let nothing = arrays.len() - 1;
    let choice: Vec<(usize, usize)> = (0..rows)
        .map(|row| {
            let has_value = |array: &ArrayRef| {
                !(is_missing(array, row) || blank_is_missing && is_blank(array, row))
            };
            let best = arrays[..nothing].iter().position(has_value);
            // A blank text is still what was there.
            let any = || {
                arrays[..nothing]
                    .iter()
                    .position(|array| !is_missing(array, row))
            };
            best.or_else(any).map_or((nothing, 0), |array| (array, row))
        })
        .collect();
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    interleave(&arrays, &choice)
}

/// Whether values of a type take more or less room.
pub fn varies(data_type: &Arrow) -> bool {
    match data_type {
        Arrow::Struct(fields) => fields.iter().any(|field| varies(field.data_type())),
        other => other.is_nested() || data_type_width(other).is_none(),
    }
}

/// Bytes of a value, without those that its length decides.
pub fn width_of(data_type: &Arrow) -> u64 {
    match data_type {
        Arrow::Struct(fields) => fields.iter().map(|field| width_of(field.data_type())).sum(),
        other => data_type_width(other).unwrap_or(OFFSET),
    }
}

/// Bytes that tell where a value of varying length ends.
const OFFSET: u64 = 8;

fn data_type_width(data_type: &Arrow) -> Option<u64> {
    match data_type {
        Arrow::Boolean | Arrow::Null => Some(1),
        Arrow::FixedSizeBinary(width) => u64::try_from(*width).ok(),
        other => other.primitive_width().map(|width| width as u64),
    }
}

/// Bytes of a row's value, however the array stores it.
pub fn bytes_of(array: &dyn Array, row: usize) -> u64 {
    let within = |items: &ArrayRef, from: usize, to: usize| -> u64 {
        if varies(items.data_type()) {
            (from..to).map(|row| OFFSET + bytes_of(items, row)).sum()
        } else {
            (to - from) as u64 * width_of(items.data_type())
        }
    };
    match array.data_type() {
        Arrow::LargeUtf8 => array.as_string::<i64>().value_length(row) as u64,
        Arrow::LargeBinary => array.as_binary::<i64>().value_length(row) as u64,
        Arrow::Utf8 => array.as_string::<i32>().value_length(row) as u64,
        Arrow::Binary => array.as_binary::<i32>().value_length(row) as u64,
        Arrow::Struct(_) => {
            let fields = array.as_struct().columns().iter();
            fields.map(|field| bytes_of(field, row)).sum()
        }
        Arrow::List(_) => {
            let list = array.as_list::<i32>();
            let (from, to) = (list.value_offsets()[row], list.value_offsets()[row + 1]);
            within(list.values(), from as usize, to as usize)
        }
        Arrow::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (from, to) = (list.value_offsets()[row], list.value_offsets()[row + 1]);
            within(list.values(), from as usize, to as usize)
        }
        other => width_of(other),
    }
}

fn is_blank(array: &ArrayRef, row: usize) -> bool {
    array
        .as_string_opt::<i64>()
        .is_some_and(|texts| texts.value(row).trim().is_empty())
}

/// Takes rows; a null index gives a row without a value, a present struct where it is a struct.
pub fn take_present(array: &ArrayRef, indices: &UInt32Array) -> Result<ArrayRef, String> {
    match array.data_type() {
        Arrow::Struct(fields) => {
            let source = array.as_struct();
            let children = source
                .columns()
                .iter()
                .map(|child| take_present(child, indices))
                .collect::<Result<Vec<_>, _>>()?;
            // What was found keeps its own nulls: only within another struct can it have some.
            let nulls = source.nulls().map(|nulls| {
                let is_valid =
                    |index: Option<u32>| index.is_none_or(|row| nulls.is_valid(row as usize));
                NullBuffer::from_iter(indices.iter().map(is_valid))
            });
            StructArray::try_new_with_length(fields.clone(), children, nulls, indices.len())
                .map(|array| Arc::new(array) as ArrayRef)
                .map_err(|error| error.to_string())
        }
        _ => take(array, indices, None).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};

    use super::*;

    #[test]
    fn what_is_found_keeps_its_nulls_and_what_is_not_is_a_struct_of_nulls() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let inner = RecordBatch::try_from_iter_with_nullable([("x", numbers, true)]).unwrap();
        let (fields, children, _) = StructArray::from(inner).into_parts();
        let nulls = NullBuffer::from(vec![true, false]);
        let inner: ArrayRef = Arc::new(StructArray::new(fields, children, Some(nulls)));
        let outer = RecordBatch::try_from_iter_with_nullable([("inner", inner, true)]).unwrap();
        let outer: ArrayRef = Arc::new(StructArray::from(outer));
        let taken = take_present(&outer, &UInt32Array::from(vec![Some(1), None, Some(0)])).unwrap();
        let inner = taken.as_struct().column(0).clone();
        assert_eq!(taken.null_count(), 0);
        let valid: Vec<bool> = (0..3).map(|row| inner.is_valid(row)).collect();
        assert_eq!(valid, [false, true, true]);
        let numbers = inner.as_struct().column(0);
        assert!(numbers.is_null(1) && numbers.is_valid(2));
    }
}
