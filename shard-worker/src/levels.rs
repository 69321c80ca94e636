//! What the levels of a column say: how many records it holds, and which rows have a value.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::Type;

use crate::leaf::{BATCH, page_reader};
use crate::parquet_file::ParquetFile;

/// The rows of a top-level column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Presence {
    /// Rows with a value; of a struct, with one in any field.
    pub populated: u64,
    /// Rows whose struct has an `error`.
    pub errors: u64,
    /// Whether a struct is null where one with nothing but nulls can be put in its place.
    pub null_structs: bool,
}

/// Rows with a value, by the footer: of a plain column, where its writer has counted nulls.
fn counted_by_footer(file: &ParquetFile, root: usize) -> Option<u64> {
    let mut populated = 0;
    let [leaf] = file.leaves_of(root)[..] else {
        return None;
    };
    for (group, rows) in file.groups() {
        let chunk = file.metadata.row_group(group).column(leaf);
        let nulls = chunk.statistics()?.null_count_opt()?;
        populated += (rows as u64).checked_sub(nulls)?;
    }
    Some(populated)
}

/// Reads the levels of a top-level column, or what the footer says of them where that can change
/// no value. `None` if it has lists in it: their levels do not
/// tell rows without a value from empty lists.
///
/// # Errors
/// If a page cannot be read, or a row group has not as many records as it has rows.
pub fn presence(file: &ParquetFile, root: usize) -> Result<Option<Presence>> {
    let schema = file.metadata.file_metadata().schema_descr();
    let leaves = file.leaves_of(root);
    let has_lists = |&leaf: &usize| schema.column(leaf).max_rep_level() > 0;
    let error_leaf = match error_field(&file.roots()[root]) {
        Some(field) if !field.is_primitive() => return Ok(None),
        Some(_) => leaves
            .iter()
            .copied()
            .find(|&leaf| schema.column(leaf).path().parts()[1..] == ["error".to_owned()]),
        None => None,
    };
    if leaves.iter().any(has_lists) {
        return Ok(None);
    }
    if file.roots()[root].is_primitive()
        && let Some(populated) = counted_by_footer(file, root)
    {
        return Ok(Some(Presence {
            populated,
            ..Presence::default()
        }));
    }
    // A null struct can't become one of nulls where a field must have a value.
    let is_optional = |&leaf: &usize| {
        let column = schema.column(leaf);
        usize::try_from(column.max_def_level()) == Ok(column.path().parts().len())
    };
    let all_optional = leaves.iter().all(is_optional);
    let mut presence = Presence::default();
    for (group, rows) in file.groups() {
        let mut has_value = vec![false; rows];
        for &leaf in &leaves {
            let highest = schema.column(leaf).max_def_level();
            if highest == 0 {
                has_value.fill(true);
                presence.errors += u64::from(error_leaf == Some(leaf)) * rows as u64;
                continue;
            }
            let (mut row, mut present) = (0, 0);
            let records = read_levels(file, group, leaf, |levels| {
                for &level in levels {
                    if level == highest {
                        present += 1;
                        if let Some(has_value) = has_value.get_mut(row) {
                            *has_value = true;
                        }
                    }
                    presence.null_structs |= all_optional && level + 1 < highest;
                    row += 1;
                }
            })?;
            check_records(group, records, rows)?;
            presence.errors += u64::from(error_leaf == Some(leaf)) * present;
        }
        presence.populated += has_value.iter().filter(|&&has_value| has_value).count() as u64;
    }
    Ok(Some(presence))
}

fn error_field(root: &Type) -> Option<&Type> {
    if root.is_primitive() {
        return None;
    }
    let mut fields = root.get_fields().iter();
    fields
        .find(|field| field.name() == "error")
        .map(AsRef::as_ref)
}

/// Sees to it that every leaf with lists in it has a record for each row: its number of values
/// says nothing of that, and one record more or less would shift all rows that follow.
///
/// # Errors
/// If a page cannot be read, or a row group has not as many records as it has rows.
pub fn check_lists(file: &ParquetFile, root: usize) -> Result<()> {
    let schema = file.metadata.file_metadata().schema_descr();
    for leaf in file.leaves_of(root) {
        if schema.column(leaf).max_rep_level() == 0 {
            continue;
        }
        for (group, rows) in file.groups() {
            let records = read_levels(file, group, leaf, |_| {})?;
            check_records(group, records, rows)?;
        }
    }
    Ok(())
}

fn check_records(group: usize, records: usize, rows: usize) -> Result<()> {
    if records == rows {
        return Ok(());
    }
    Err(ParquetError::General(format!(
        "row group {group}: {records} records for {rows} rows"
    )))
}

/// Reads a leaf of a row group to its end and calls `visit` with its definition levels, which
/// are none if it has to have a value. Returns the number of records.
fn read_levels(
    file: &ParquetFile,
    group: usize,
    leaf: usize,
    visit: impl FnMut(&[i16]),
) -> Result<usize> {
    let row_group = file.metadata.row_group(group);
    let pages = Box::new(page_reader(file.bytes.clone(), row_group, leaf)?);
    let descriptor = file.metadata.file_metadata().schema_descr().column(leaf);
    match get_column_reader(descriptor, pages) {
        ColumnReader::BoolColumnReader(reader) => drain(reader, visit),
        ColumnReader::Int32ColumnReader(reader) => drain(reader, visit),
        ColumnReader::Int64ColumnReader(reader) => drain(reader, visit),
        ColumnReader::Int96ColumnReader(reader) => drain(reader, visit),
        ColumnReader::FloatColumnReader(reader) => drain(reader, visit),
        ColumnReader::DoubleColumnReader(reader) => drain(reader, visit),
        ColumnReader::ByteArrayColumnReader(reader) => drain(reader, visit),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => drain(reader, visit),
    }
}

fn drain<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    mut visit: impl FnMut(&[i16]),
) -> Result<usize> {
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut total = 0;
    loop {
        definition.clear();
        repetition.clear();
        values.clear();
        let (records, _, levels) = reader.read_records(
            BATCH,
            Some(&mut definition),
            Some(&mut repetition),
            &mut values,
        )?;
        if records == 0 && levels == 0 {
            return Ok(total);
        }
        visit(&definition);
        total += records;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{DataType as Arrow, Field, Fields};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use storage::{ETag, ObjectMeta};

    use super::*;

    /// A file with one column, in row groups of three rows.
    fn file(array: ArrayRef, statistics: EnabledStatistics) -> ParquetFile {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
        let properties = WriterProperties::builder()
            .set_statistics_enabled(statistics)
            .set_max_row_group_row_count(Some(3))
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let bytes = bytes::Bytes::from(writer.into_inner().unwrap());
        let meta = ObjectMeta {
            key: "c".to_owned(),
            size: bytes.len() as u64,
            etag: ETag("1".into()),
        };
        ParquetFile::from_bytes("memory:c", meta, bytes).unwrap()
    }

    fn structs(nullable: bool, present: [bool; 5]) -> ArrayRef {
        let fields = Fields::from(vec![
            Field::new("score", Arrow::Int64, nullable),
            Field::new("error", Arrow::Utf8, true),
        ]);
        let scores = [Some(1), None, Some(3), None, Some(5)];
        let scores = scores.map(|score| score.or((!nullable).then_some(0)));
        let errors = [None, Some("e"), Some("f"), None, None];
        let children: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(scores.to_vec())),
            Arc::new(StringArray::from(errors.to_vec())),
        ];
        let nulls = NullBuffer::from(present.to_vec());
        Arc::new(StructArray::try_new(fields, children, Some(nulls)).unwrap())
    }

    #[test]
    fn rows_with_a_value_are_counted_whether_or_not_the_footer_has_counted() {
        let numbers = || Arc::new(Int64Array::from(vec![Some(1), None, None, Some(4), None]));
        let all = [true; 5];
        let third = [true, true, false, true, true];
        let table: [(ArrayRef, (u64, u64, bool)); 4] = [
            (numbers(), (2, 0, false)),
            (structs(true, all), (4, 2, false)),
            (structs(true, third), (3, 1, true)),
            // No struct of nulls can stand where a field must have a value.
            (structs(false, third), (4, 1, false)),
        ];
        for (array, (populated, errors, null_structs)) in table {
            let expected = Presence {
                populated,
                errors,
                null_structs,
            };
            for statistics in [EnabledStatistics::Chunk, EnabledStatistics::None] {
                let file = file(array.clone(), statistics);
                assert_eq!(presence(&file, 0).unwrap(), Some(expected), "{array:?}");
            }
        }
    }
}
