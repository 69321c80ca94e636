//! Values of the columns that are not copied as they are.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringBuilder, StructArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType as Arrow, FieldRef, Schema};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::{SchemaDescriptor, Type};

use crate::arrow_types::{empty_array, is_missing};
use crate::column_plan::{ShardFiles, Value, natural_type};
use crate::error::ShardError;
use crate::keys;
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

impl ShardFound<'_> {
    /// Rows for which something was found.
    pub fn matched(&self) -> usize {
        self.rows.iter().filter(|&&row| row != NONE).count()
    }
}

/// Values that do not come from a shard's files.
#[derive(Debug, Clone, Copy)]
pub struct Produced<'a> {
    /// What each lookup found.
    pub found: &'a [ShardFound<'a>],
    /// What filters say: columns of each step that has some.
    pub computed: &'a [Vec<ArrayRef>],
    /// Where rows are noted whose value does not fit what is declared.
    pub unfit: &'a RefCell<Unfit>,
}

/// Evaluates a column of a declared type: one array with a row for each row of main.
pub fn evaluate(
    value: &Value,
    declared: &FieldRef,
    files: &ShardFiles,
    produced: Produced<'_>,
) -> Result<ArrayRef, ShardError> {
    let rows = files.main.num_rows();
    let target = declared.data_type();
    let failed = |error: &dyn std::fmt::Display| {
        ShardError::schema(
            &files.main.uri,
            format!("column {:?}: {error}", declared.name()),
        )
    };
    match value {
        Value::Empty => Ok(empty_array(target, rows)),
        Value::Lookup { lookup, column } => {
            let ShardFound {
                rows,
                columns,
                unfit,
            } = produced.found[*lookup];
            let mut noted = produced.unfit.borrow_mut();
            for bad in unfit.get(*column).into_iter().flat_map(Unfit::rows) {
                let rows = rows.iter().enumerate().filter(|(_, found)| **found == bad);
                rows.for_each(|(row, _)| noted.add(row as u32, ""));
            }
            let indices =
                UInt32Array::from_iter(rows.iter().map(|&row| (row != NONE).then_some(row)));
            take_present(&columns[*column], &indices).map_err(|error| failed(&error))
        }
        Value::Computed { step, column } => Ok(produced.computed[*step][*column].clone()),
        Value::File { file, root } => {
            let file = files
                .get(*file)
                .ok_or_else(|| failed(&"its file is missing"))?;
            let mut unfit = Unfit::default();
            let mut base = 0;
            let mut adapted = Vec::new();
            for batch in decode_or_empty(file, *root, &mut unfit)? {
                let fits = adapt_or_empty(&batch, target, base, &mut unfit);
                base += batch.len() as u32;
                adapted.push(fits.map_err(|error| {
                    ShardError::schema(&file.uri, format!("column {:?}: {error}", declared.name()))
                })?);
            }
            for (row, reason) in unfit.first() {
                let (uri, name) = (&file.uri, declared.name());
                tracing::warn!(
                    "{uri}, row {row}, column {name:?}: {reason}; the row is left empty"
                );
            }
            let mut noted = produced.unfit.borrow_mut();
            unfit.rows().for_each(|row| noted.add(row, ""));
            let pieces: Vec<&dyn Array> = adapted.iter().map(AsRef::as_ref).collect();
            if pieces.is_empty() {
                return Ok(empty_array(target, 0));
            }
            concat(&pieces).map_err(|error| failed(&error))
        }
        Value::FirstPresent {
            candidates,
            blank_is_missing,
        } => {
            let mut arrays = candidates
                .iter()
                .map(|candidate| evaluate(candidate, declared, files, produced))
                .collect::<Result<Vec<_>, _>>()?;
            arrays.push(empty_array(target, 1));
            let nothing = arrays.len() - 1;
            let choice: Vec<(usize, usize)> = (0..rows)
                .map(|row| {
                    let has_value = |array: &ArrayRef| {
                        !(is_missing(array, row) || *blank_is_missing && is_blank(array, row))
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
            interleave(&arrays, &choice).map_err(|error| failed(&error))
        }
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

/// As [`decode`]; texts that are none come out null, and are noted.
fn decode_or_empty(
    file: &ParquetFile,
    root: usize,
    unfit: &mut Unfit,
) -> Result<Vec<ArrayRef>, ShardError> {
    let error = match decode(file, root) {
        Ok(batches) => return Ok(batches),
        Err(error) => error,
    };
    if natural_type(file, root)? != Arrow::Utf8 {
        return Err(error);
    }
    let leaf = file.leaves_of(root).start;
    let mut batches: Vec<ArrayRef> = Vec::new();
    let mut base = 0;
    for (group, rows) in file.groups() {
        let mut texts = LargeStringBuilder::new();
        let visit = |row: usize, value: Option<&[u8]>| {
            let text = value.and_then(|value| std::str::from_utf8(value).ok());
            if value.is_some() && text.is_none() {
                unfit.add((base + row) as u32, "the text is not UTF-8");
            }
            texts.append_option(text);
            Ok(())
        };
        // What is wrong with more than its texts was said above.
        let read = keys::visit(file.bytes.clone(), file, group, leaf, visit);
        let texts = texts.finish();
        if read.is_err() || texts.len() != rows {
            return Err(error);
        }
        batches.push(Arc::new(texts));
        base += rows;
    }
    Ok(batches)
}

/// Decodes a top-level column from its fetched chunks, in batches of bounded bytes. Texts and
/// blobs come with 64-bit offsets.
pub fn decode(file: &ParquetFile, root: usize) -> Result<Vec<ArrayRef>, ShardError> {
    let malformed = |error: &dyn std::fmt::Display| {
        ShardError::malformed(
            &file.uri,
            format!("column {:?}: {error}", file.roots()[root].name()),
        )
    };
    let metadata = alone(file, root).map_err(|error| malformed(&error))?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let natural = ArrowReaderMetadata::try_new(metadata.clone(), options.clone())
        .map_err(|error| malformed(&error))?;
    let wide: Vec<FieldRef> = natural
        .schema()
        .fields()
        .iter()
        .map(|field| {
            Arc::new(
                field
                    .as_ref()
                    .clone()
                    .with_data_type(widen(field.data_type())),
            )
        })
        .collect();
    let metadata =
        ArrowReaderMetadata::try_new(metadata, options.with_schema(Arc::new(Schema::new(wide))))
            .map_err(|error| malformed(&error))?;
    let mut batches = Vec::new();
    // One by one: a row group with a row more or less would shift those of the next.
    for (group, expected) in file.groups() {
        let source = file.bytes.as_ref().clone();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(source, metadata.clone())
            .with_row_groups(vec![group])
            .with_batch_size(4096)
            .build()
            .map_err(|error| malformed(&error))?;
        let mut rows = 0;
        for batch in reader {
            let batch = batch.map_err(|error| malformed(&error))?;
            rows += batch.num_rows();
            batches.push(batch.column(0).clone());
        }
        if rows != expected {
            return Err(malformed(&format_args!(
                "row group {group}: {rows} rows decoded, the footer says {expected}"
            )));
        }
    }
    Ok(batches)
}

/// The footer as if the file had but this column: what the others are is of no concern, and a
/// wide file's schema is not converted once a column.
fn alone(file: &ParquetFile, root: usize) -> parquet::errors::Result<Arc<ParquetMetaData>> {
    let whole = file.metadata.file_metadata();
    let schema = Arc::new(
        Type::group_type_builder(whole.schema().name())
            .with_fields(vec![file.roots()[root].clone()])
            .build()?,
    );
    let descriptor = Arc::new(SchemaDescriptor::new(schema));
    let mut groups = Vec::with_capacity(file.metadata.num_row_groups());
    for group in file.metadata.row_groups() {
        let chunks = group.columns()[file.leaves_of(root)].to_vec();
        groups.push(
            RowGroupMetaData::builder(descriptor.clone())
                .set_num_rows(group.num_rows())
                .set_column_metadata(chunks)
                .build()?,
        );
    }
    let footer = FileMetaData::new(
        whole.version(),
        whole.num_rows(),
        whole.created_by().map(str::to_owned),
        None,
        descriptor,
        None,
    );
    Ok(Arc::new(ParquetMetaData::new(footer, groups)))
}

/// The same type with 64-bit offsets for texts and blobs.
fn widen(data_type: &Arrow) -> Arrow {
    let child = |field: &FieldRef| {
        Arc::new(
            field
                .as_ref()
                .clone()
                .with_data_type(widen(field.data_type())),
        )
    };
    match data_type {
        Arrow::Utf8 => Arrow::LargeUtf8,
        Arrow::Binary => Arrow::LargeBinary,
        Arrow::Struct(fields) => Arrow::Struct(fields.iter().map(child).collect()),
        Arrow::List(item) => Arrow::List(child(item)),
        Arrow::Map(entries, sorted) => Arrow::Map(child(entries), *sorted),
        other => other.clone(),
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
