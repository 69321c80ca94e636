//! What the levels of a column say: how many records it holds, and which rows have a value.

use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::data_type::DataType;
use parquet::errors::Result;
use parquet::schema::types::Type;

use crate::parquet_file::ParquetFile;
use crate::records::{LeafVisitor, Records, visit};

/// The rows of a top-level column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Presence {
    /// Rows with a value; of a struct, with one in any field.
    pub populated: u64,
    /// Rows whose struct has an `error`.
    pub errors: u64,
    /// Whether a row's struct is null where one with nothing but nulls can be put in its place.
    pub null_structs: bool,
}

/// Whether the values of a top-level column are structs in whose place one of nulls can be put:
/// no field of it must have a value.
pub fn has_optional_fields(root: &Type) -> bool {
    let is_optional = |field: &Type| field.get_basic_info().repetition() == Repetition::OPTIONAL;
    is_struct(root) && is_optional(root) && root.get_fields().iter().all(|field| is_optional(field))
}

/// A group that is a value for each of its fields, not one value of another kind.
fn is_struct(field: &Type) -> bool {
    let info = field.get_basic_info();
    field.is_group()
        && !matches!(
            info.logical_type_ref(),
            Some(LogicalType::List | LogicalType::Map | LogicalType::Variant(_))
        )
        && !matches!(
            info.converted_type(),
            ConvertedType::LIST | ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE
        )
}

/// From which definition level on a leaf says that its row has a value, in the order of leaves.
/// An empty list is one, and so is a list of nulls.
fn thresholds(field: &Type, before: i16, decided: Option<i16>, into: &mut Vec<i16>) {
    let repetition = field.get_basic_info().repetition();
    let level = before + i16::from(repetition != Repetition::REQUIRED);
    let decided = decided.or(if repetition == Repetition::REPEATED {
        // A list of its own, that is there as soon as what holds it is.
        Some(before)
    } else {
        (!is_struct(field)).then_some(level)
    });
    if field.is_primitive() {
        into.push(decided.unwrap_or(level));
        return;
    }
    for child in field.get_fields() {
        thresholds(child, level, decided, into);
    }
}

/// Counts the rows of a top-level column while its leaves are read, one after the other.
#[derive(Debug)]
pub struct Counter {
    first_leaf: usize,
    thresholds: Vec<i16>,
    /// The leaf that tells whether there is an `error`, and from which level on.
    error: Option<(usize, i16)>,
    can_be_present: bool,
    has_value: Vec<bool>,
    presence: Presence,
}

impl Counter {
    /// For the top-level column `root` of a file.
    pub fn new(file: &ParquetFile, root: usize) -> Self {
        let field = &file.roots()[root];
        let first_leaf = file.leaves_of(root).start;
        let mut levels = Vec::new();
        thresholds(field, 0, None, &mut levels);
        let mut error = None;
        if is_struct(field) {
            let before = i16::from(field.get_basic_info().repetition() != Repetition::REQUIRED);
            let mut leaf = first_leaf;
            for child in field.get_fields() {
                let repetition = child.get_basic_info().repetition();
                if child.name() == "error" {
                    let level = before + i16::from(repetition == Repetition::OPTIONAL);
                    error = Some((leaf, level));
                }
                let mut leaves = Vec::new();
                thresholds(child, before, None, &mut leaves);
                leaf += leaves.len();
            }
        }
        Self {
            first_leaf,
            thresholds: levels,
            error,
            can_be_present: has_optional_fields(field),
            has_value: Vec::new(),
            presence: Presence::default(),
        }
    }

    /// Sees records of a leaf that begin with row `first_row`. Returns the row after them.
    pub fn see(
        &mut self,
        leaf: usize,
        first_row: usize,
        records: usize,
        definition: Option<&[i16]>,
        repetition: Option<&[i16]>,
    ) -> usize {
        let end = first_row + records;
        if self.has_value.len() < end {
            self.has_value.resize(end, false);
        }
        let threshold = self
            .thresholds
            .get(leaf - self.first_leaf)
            .copied()
            .unwrap_or(0);
        let error = self
            .error
            .and_then(|(error, level)| (error == leaf).then_some(level));
        let Some(definition) = definition else {
            self.has_value[first_row..end].fill(true);
            self.presence.errors += if error.is_some() { records as u64 } else { 0 };
            return end;
        };
        let mut rows = self.has_value[first_row..end].iter_mut();
        for (position, &level) in definition.iter().enumerate() {
            if repetition.is_some_and(|levels| levels[position] > 0) {
                continue;
            }
            if let Some(has_value) = rows.next() {
                *has_value |= level >= threshold;
            }
            self.presence.errors += u64::from(error.is_some_and(|error| level >= error));
            self.presence.null_structs |= self.can_be_present && level == 0;
        }
        end
    }

    /// What the rows hold, once all leaves were seen.
    pub fn presence(mut self) -> Presence {
        let populated = self.has_value.iter().filter(|&&has_value| has_value);
        self.presence.populated = populated.count() as u64;
        self.presence
    }
}

/// Rows with a value, by the footer: of a plain column, where its writer has counted nulls.
fn counted_by_footer(file: &ParquetFile, root: usize) -> Option<u64> {
    let mut populated = 0;
    let leaf = file.leaves_of(root).start;
    let column = file.metadata.file_metadata().schema_descr().column(leaf);
    if !file.roots()[root].is_primitive() || column.max_rep_level() > 0 {
        return None;
    }
    for (group, rows) in file.groups() {
        let chunk = file.metadata.row_group(group).column(leaf);
        let nulls = chunk.statistics()?.null_count_opt()?;
        populated += (rows as u64).checked_sub(nulls)?;
    }
    Some(populated)
}

/// Reads the levels of a top-level column, or what the footer says of them where that can change
/// no value.
///
/// # Errors
/// If a page cannot be read, or a row group has not as many records as it has rows.
pub fn presence(file: &ParquetFile, root: usize) -> Result<Presence> {
    if let Some(populated) = counted_by_footer(file, root) {
        return Ok(Presence {
            populated,
            ..Presence::default()
        });
    }
    let mut counter = Counter::new(file, root);
    for leaf in file.leaves_of(root) {
        visit(
            file,
            leaf,
            Count {
                leaf,
                counter: Some(&mut counter),
            },
        )?;
    }
    Ok(counter.presence())
}

/// Sees to it that every leaf with lists in it has a record for each row: its number of values
/// says nothing of that, and one record more or less would shift all rows that follow.
///
/// # Errors
/// If a page cannot be read, or a row group has not as many records as it has rows.
pub fn check_lists(file: &ParquetFile, root: usize) -> Result<()> {
    let schema = file.metadata.file_metadata().schema_descr();
    for leaf in file.leaves_of(root) {
        if schema.column(leaf).max_rep_level() > 0 {
            check(file, leaf)?;
        }
    }
    Ok(())
}

/// Reads every record of a leaf.
///
/// # Errors
/// If a page cannot be read, or a row group has not as many records as it has rows.
pub fn check(file: &ParquetFile, leaf: usize) -> Result<()> {
    visit(
        file,
        leaf,
        Count {
            leaf,
            counter: None,
        },
    )
}

/// Reads the beginning of each chunk of a leaf, up to the first values.
///
/// # Errors
/// If a page cannot be read.
pub fn check_beginnings(file: &ParquetFile, leaf: usize) -> Result<()> {
    visit(file, leaf, Beginnings)
}

struct Beginnings;

impl LeafVisitor for Beginnings {
    type Output = ();

    fn visit<T: DataType>(self, mut records: Records<'_, T>) -> Result<()> {
        while let Some(batch) = records.next(256)? {
            if !batch.values.is_empty() {
                records.leave_group();
            }
        }
        Ok(())
    }
}

/// Reads all records, and counts them if there is a counter.
struct Count<'a> {
    leaf: usize,
    counter: Option<&'a mut Counter>,
}

impl LeafVisitor for Count<'_> {
    type Output = ();

    fn visit<T: DataType>(mut self, mut records: Records<'_, T>) -> Result<()> {
        let mut row = 0;
        while let Some(batch) = records.next(usize::MAX)? {
            if let Some(counter) = &mut self.counter {
                let definition = batch.definition.as_deref();
                row = counter.see(self.leaf, row, batch.records, definition, batch.repetition);
            }
        }
        Ok(())
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
                assert_eq!(presence(&file, 0).unwrap(), expected, "{array:?}");
            }
        }
    }
}
