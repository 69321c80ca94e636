//! Encodes the columns of a sidecar that no file has as they are, while their values come.
//!
//! The bytes depend on the values alone, not on how many came at a time: they are encoded in
//! blocks that end where their bytes say so.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::basic::{Compression, Encoding, Type as PhysicalType, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::arrow_types::{count_values, empty_array};
use crate::column_plan::{PlannedColumn, ShardFiles, Value};
use crate::decode::BATCH_BYTES;
use crate::error::ShardError;
use crate::evaluate::{Produced, Values, bytes_of, varies, width_of};

/// Who wrote the file, without a version: the same bytes from every release.
pub const CREATED_BY: &str = "sidecarjob shard-worker";

/// Where blocks and row groups end.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of texts, blobs and lists of all columns after which a block ends.
    pub block: u64,
    /// Bytes of all values after which a block ends.
    pub block_in_all: u64,
    /// Bytes of a column's texts, blobs or lists after which a row group ends, though main's goes
    /// on: readers hold a column of a row group at once, and some can't hold 2 GiB of texts.
    pub group: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            block: 16 << 20,
            block_in_all: 64 << 20,
            group: 1 << 30,
        }
    }
}

/// Rows that are evaluated at once, at most.
const WINDOW: usize = 64 << 10;
/// Rows without values that are encoded at once: a multiple of the rows of a page and of those that
/// the writer takes at a time, so that pages end where they would if all came at once.
const EMPTY_ROWS: usize = 640_000;
/// Bytes of a file's values that are decoded at once, where many columns come from files.
const SMALLEST_BATCH: usize = 256 << 10;

/// Per-column figures of a shard, in the order of the columns that are not main's alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnCounts {
    /// Column.
    pub name: String,
    /// Rows with a value.
    pub populated: u64,
    /// Rows without.
    pub null: u64,
    /// Rows whose struct carries an `error`.
    pub errors: u64,
}

/// The columns of a shard that are evaluated and encoded.
pub struct NewColumns<'a> {
    uri: &'a str,
    bounds: Bounds,
    columns: Vec<NewColumn<'a>>,
    schema: SchemaRef,
    factory: Option<ArrowRowGroupWriterFactory>,
    /// Rows of main's row groups that are still to come.
    main_groups: std::vec::IntoIter<usize>,
    /// Rows of main's present row group that are still to come.
    left: usize,
    /// Rows of the row group that is being written.
    rows: usize,
    writers: Vec<Vec<ArrowColumnWriter>>,
    block_rows: usize,
    block_bytes: u64,
    block_bytes_in_all: u64,
    groups: Vec<NewGroup>,
}

struct NewColumn<'a> {
    /// None where no row has a value.
    values: Option<Values<'a>>,
    leaves: usize,
    /// Whether values are of different sizes.
    varies: bool,
    width: u64,
    /// Values that are not yet encoded.
    block: Vec<ArrayRef>,
    /// Bytes of the row group that is being written.
    group_bytes: u64,
    counts: ColumnCounts,
}

/// The encoded columns of a row group.
pub struct NewGroup {
    /// Its rows.
    pub rows: usize,
    /// A chunk for each leaf of each column.
    pub chunks: std::vec::IntoIter<ArrowColumnChunk>,
}

/// All that was encoded.
pub struct Encoded {
    /// Row groups: main's, or parts of them.
    pub groups: Vec<NewGroup>,
    /// What was counted, a column each.
    pub counts: std::vec::IntoIter<ColumnCounts>,
}

impl<'a> NewColumns<'a> {
    /// Columns of a shard, with their declarations.
    ///
    /// # Errors
    /// If a column has no declaration, or a file's values cannot be read.
    pub fn open(
        files: &'a ShardFiles,
        planned: &[&'a PlannedColumn],
        bounds: Bounds,
    ) -> Result<Self, ShardError> {
        let uri = &files.main.uri;
        let failed = |error: ParquetError| cannot_be_written(uri, &error);
        let batch_bytes = (BATCH_BYTES / planned.len().max(1)).max(SMALLEST_BATCH);
        let (mut columns, mut types, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        for planned in planned {
            let Some(declared) = &planned.declared else {
                let reason = format!("column {:?} has no declared type", planned.name);
                return Err(ShardError::schema(uri, reason));
            };
            let written = parquet_type(declared).map_err(failed)?;
            let alone = message(vec![written.clone()]).map_err(failed)?;
            let values = match &planned.value {
                Value::Empty => None,
                value => Some(Values::open(value, declared, files, batch_bytes)?),
            };
            columns.push(NewColumn {
                leaves: SchemaDescriptor::new(alone).num_columns(),
                varies: values.is_some() && varies(declared.data_type()),
                width: values
                    .as_ref()
                    .map_or(0, |_| width_of(declared.data_type())),
                values,
                block: Vec::new(),
                group_bytes: 0,
                counts: ColumnCounts {
                    name: planned.name.clone(),
                    populated: 0,
                    null: 0,
                    errors: 0,
                },
            });
            types.push(written);
            fields.push(declared.clone());
        }
        let schema = Arc::new(Schema::new(fields));
        let mut new = Self {
            uri,
            bounds,
            columns,
            factory: factory(types, &schema).map_err(failed)?,
            schema,
            main_groups: files.main.group_rows().into_iter(),
            left: 0,
            rows: 0,
            writers: Vec::new(),
            block_rows: 0,
            block_bytes: 0,
            block_bytes_in_all: 0,
            groups: Vec::new(),
        };
        new.open_main_group()?;
        Ok(new)
    }

    /// Evaluates and encodes the next rows of the shard.
    ///
    /// # Errors
    /// If values cannot be read, brought into the declared type, or encoded.
    pub fn add(&mut self, rows: Range<usize>, produced: Produced<'_>) -> Result<(), ShardError> {
        let mut row = rows.start;
        while row < rows.end {
            let most = (rows.end - row).min(self.left).min(WINDOW);
            if most == 0 {
                let reason = format!("its sidecar cannot be written: more than {row} rows");
                return Err(ShardError::malformed(self.uri, reason));
            }
            let count = self.ready(row, most, produced)?;
            let mut pieces = Vec::with_capacity(self.columns.len());
            for column in &mut self.columns {
                let Some(values) = &mut column.values else {
                    column.counts.null += count as u64;
                    pieces.push(None);
                    continue;
                };
                let piece = values.take(row..row + count, produced)?;
                let (populated, errors) = count_values(&piece);
                column.counts.populated += populated;
                column.counts.null += count as u64 - populated;
                column.counts.errors += errors;
                pieces.push(Some(piece));
            }
            self.take_in(&pieces, count)?;
            row += count;
            if self.left == 0 {
                self.end_group()?;
                self.open_main_group()?;
            }
        }
        Ok(())
    }

    /// What was encoded, once all rows were added.
    pub fn finish(self) -> Encoded {
        let counts: Vec<ColumnCounts> = self
            .columns
            .into_iter()
            .map(|column| column.counts)
            .collect();
        Encoded {
            groups: self.groups,
            counts: counts.into_iter(),
        }
    }

    /// How many of the next `most` rows are evaluated at once: no more than end the block.
    fn ready(
        &mut self,
        row: usize,
        most: usize,
        produced: Produced<'_>,
    ) -> Result<usize, ShardError> {
        let mut count = most;
        let columns = self.columns.iter_mut();
        for values in columns.filter_map(|column| column.values.as_mut()) {
            count = values.ready(count)?;
        }
        let varying = self.columns.iter().filter(|column| column.varies);
        let varying: Vec<&Values<'_>> = varying
            .filter_map(|column| column.values.as_ref())
            .collect();
        if varying.is_empty() {
            return Ok(count);
        }
        let mut bytes = self.block_bytes;
        for taken in 0..count {
            let of_row = varying
                .iter()
                .map(|values| values.bytes_of(row + taken, produced));
            bytes += of_row.sum::<u64>();
            if bytes >= self.bounds.block {
                return Ok(taken + 1);
            }
        }
        Ok(count)
    }

    /// Takes in `count` rows, and writes what is whole of them.
    fn take_in(&mut self, pieces: &[Option<ArrayRef>], count: usize) -> Result<(), ShardError> {
        let fixed: u64 = self.columns.iter().map(|column| column.width).sum();
        let varying: Vec<usize> = (0..self.columns.len())
            .filter(|&column| self.columns[column].varies)
            .collect();
        let mut from = 0;
        for row in 0..count {
            let mut is_full = false;
            let mut varied = 0;
            for &number in &varying {
                let bytes = pieces[number]
                    .as_ref()
                    .map_or(0, |piece| bytes_of(piece, row));
                let column = &mut self.columns[number];
                column.group_bytes += bytes;
                is_full |= column.group_bytes >= self.bounds.group;
                varied += bytes;
            }
            self.block_bytes += varied;
            self.block_bytes_in_all += varied + fixed;
            if is_full
                || self.block_bytes >= self.bounds.block
                || self.block_bytes_in_all >= self.bounds.block_in_all
            {
                self.push(pieces, from, row + 1);
                from = row + 1;
                self.write_block()?;
            }
            if is_full && self.left > 0 {
                self.end_group()?;
            }
        }
        self.push(pieces, from, count);
        Ok(())
    }

    fn push(&mut self, pieces: &[Option<ArrayRef>], from: usize, to: usize) {
        if from == to {
            return;
        }
        self.rows += to - from;
        self.left -= to - from;
        self.block_rows += to - from;
        for (column, piece) in self.columns.iter_mut().zip(pieces) {
            let piece = piece.as_ref();
            column
                .block
                .extend(piece.map(|piece| piece.slice(from, to - from)));
        }
    }

    fn write_block(&mut self) -> Result<(), ShardError> {
        (self.block_bytes, self.block_bytes_in_all) = (0, 0);
        let rows = std::mem::take(&mut self.block_rows);
        if rows == 0 {
            return Ok(());
        }
        let fields = self.schema.fields().iter();
        let columns = self.columns.iter_mut().zip(&mut self.writers);
        for ((column, writers), field) in columns.zip(fields) {
            let pieces = std::mem::take(&mut column.block);
            let array = match &pieces[..] {
                [] => {
                    for start in (0..rows).step_by(EMPTY_ROWS) {
                        let rows = EMPTY_ROWS.min(rows - start);
                        let array = empty_array(field.data_type(), rows);
                        write(field, &array, writers)
                            .map_err(|error| cannot_be_written(self.uri, &error))?;
                    }
                    continue;
                }
                [only] => only.clone(),
                _ => {
                    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                    concat(&pieces).map_err(|error| cannot_be_written(self.uri, &error))?
                }
            };
            drop(pieces);
            write(field, &array, writers).map_err(|error| cannot_be_written(self.uri, &error))?;
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<(), ShardError> {
        self.write_block()?;
        let mut chunks = Vec::new();
        for writer in std::mem::take(&mut self.writers).into_iter().flatten() {
            let chunk = writer.close();
            chunks.push(chunk.map_err(|error| cannot_be_written(self.uri, &error))?);
        }
        self.groups.push(NewGroup {
            rows: std::mem::take(&mut self.rows),
            chunks: chunks.into_iter(),
        });
        if self.left > 0 {
            self.open_writers()?;
        }
        Ok(())
    }

    /// Goes on with main's next row group, and writes those of no rows.
    fn open_main_group(&mut self) -> Result<(), ShardError> {
        while self.left == 0 {
            let Some(rows) = self.main_groups.next() else {
                return Ok(());
            };
            self.left = rows;
            self.open_writers()?;
            if rows == 0 {
                self.end_group()?;
            }
        }
        Ok(())
    }

    fn open_writers(&mut self) -> Result<(), ShardError> {
        let Some(factory) = &self.factory else {
            return Ok(());
        };
        let writers = factory.create_column_writers(0);
        let writers = writers.map_err(|error| cannot_be_written(self.uri, &error))?;
        let mut writers = writers.into_iter();
        for column in &mut self.columns {
            column.group_bytes = 0;
            let leaves = writers.by_ref().take(column.leaves).collect();
            self.writers.push(leaves);
        }
        Ok(())
    }
}

fn write(
    field: &FieldRef,
    array: &ArrayRef,
    writers: &mut [ArrowColumnWriter],
) -> parquet::errors::Result<()> {
    let leaves = compute_leaves(field, array)?;
    let mut leaves = leaves.iter().zip(writers);
    leaves.try_for_each(|(leaf, writer)| writer.write(leaf))
}

/// From an error of a library that writes.
pub fn cannot_be_written(uri: &str, error: &dyn std::fmt::Display) -> ShardError {
    ShardError::malformed(uri, format!("its sidecar cannot be written: {error}"))
}

/// Writers for columns through a schema of just those; none without columns.
fn factory(
    types: Vec<TypePtr>,
    schema: &SchemaRef,
) -> parquet::errors::Result<Option<ArrowRowGroupWriterFactory>> {
    if types.is_empty() {
        return Ok(None);
    }
    let root = message(types)?;
    let properties = encoding(&SchemaDescriptor::new(root.clone()), &[]);
    let writer = SerializedFileWriter::new(std::io::sink(), root, properties)?;
    let factory = ArrowRowGroupWriterFactory::new(&writer, schema.clone());
    Ok(Some(factory))
}

/// The Parquet type of a declared column: optional throughout, lists with an `element`.
pub fn parquet_type(field: &FieldRef) -> parquet::errors::Result<TypePtr> {
    let schema = Schema::new(vec![field.clone()]);
    let descriptor = ArrowSchemaConverter::new().convert(&schema)?;
    Ok(descriptor.root_schema().get_fields()[0].clone())
}

/// A schema of these columns.
pub fn message(fields: Vec<TypePtr>) -> parquet::errors::Result<TypePtr> {
    Ok(Arc::new(
        Type::group_type_builder("schema")
            .with_fields(fields)
            .build()?,
    ))
}

/// Encoding and codec by type, and where a column had a dictionary, that may take so many bytes.
///
/// Metrics are floats whose bits hardly repeat: zstd spends most of a shard's CPU on them to
/// save little. Splitting their bytes into streams leaves the parts that do repeat side by
/// side, and lz4 finds those at ten times the speed, in files no larger than zstd's with a
/// dictionary. Texts gain from zstd.
pub fn encoding(schema: &SchemaDescriptor, dictionaries: &[Option<usize>]) -> WriterPropertiesPtr {
    let mut builder = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(Compression::LZ4_RAW)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for (leaf, column) in schema.columns().iter().enumerate() {
        let path = column.path().clone();
        builder = match column.physical_type() {
            PhysicalType::FLOAT | PhysicalType::DOUBLE => builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT),
            PhysicalType::BYTE_ARRAY => builder
                .set_column_compression(
                    path.clone(),
                    Compression::ZSTD(ZstdLevel::try_new(3).unwrap_or_default()),
                )
                // Long texts would be repeated in the footer.
                .set_column_statistics_enabled(path, EnabledStatistics::None),
            // Readers disagree on which of two is the greater.
            PhysicalType::INT96 => builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path, EnabledStatistics::None),
            _ => builder.set_column_dictionary_enabled(path, false),
        };
        if let Some(limit) = dictionaries.get(leaf).copied().flatten() {
            let path = column.path().clone();
            builder = builder
                .set_column_dictionary_enabled(path.clone(), true)
                .set_column_dictionary_page_size_limit(path, limit);
        }
    }
    Arc::new(builder.build())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use arrow::array::{Int64Array, LargeStringArray, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use storage::{ETag, ObjectMeta};

    use super::*;
    use crate::evaluate::ShardFound;
    use crate::parquet_file::ParquetFile;

    const ROWS: usize = 40;

    /// A main file with row groups of 30 rows and 10.
    fn files() -> ShardFiles {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
        let batch = RecordBatch::try_from_iter([("k", numbers)]).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(30))
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let bytes = bytes::Bytes::from(writer.into_inner().unwrap());
        let meta = ObjectMeta {
            key: "k".to_owned(),
            size: bytes.len() as u64,
            etag: ETag("1".into()),
        };
        ShardFiles {
            main: ParquetFile::from_bytes("memory:k", meta, bytes).unwrap(),
            siblings: Vec::new(),
        }
    }

    fn planned(name: &str, value: Value, data_type: arrow::datatypes::DataType) -> PlannedColumn {
        let declared = arrow::datatypes::Field::new(name, data_type, true);
        PlannedColumn {
            name: name.to_owned(),
            declared: Some(Arc::new(declared)),
            value,
        }
    }

    /// Rows and bytes of the row groups, where so many rows come at a time.
    fn groups(at_once: usize, bounds: Bounds) -> Vec<(usize, Vec<u64>)> {
        let files = files();
        let lookup = |column| Value::Lookup { lookup: 0, column };
        let columns = [
            planned("text", lookup(0), arrow::datatypes::DataType::LargeUtf8),
            planned("none", Value::Empty, arrow::datatypes::DataType::Float64),
            planned("number", lookup(1), arrow::datatypes::DataType::Int64),
        ];
        let columns: Vec<&PlannedColumn> = columns.iter().collect();
        let mut new = NewColumns::open(&files, &columns, bounds).unwrap();
        // 100 bytes each.
        let texts = (0..ROWS).map(|row| Some(format!("{row:0>100}")));
        let found: [ArrayRef; 2] = [
            Arc::new(texts.collect::<LargeStringArray>()),
            Arc::new(Int64Array::from_iter_values(0..ROWS as i64)),
        ];
        let places: Vec<u32> = (0..ROWS as u32).collect();
        let unfit = RefCell::default();
        for start in (0..ROWS).step_by(at_once) {
            let rows = start..ROWS.min(start + at_once);
            let seen = [ShardFound {
                rows: &places[rows.clone()],
                columns: &found,
                unfit: &[],
            }];
            let produced = Produced {
                first_row: start,
                found: &seen,
                computed: &[],
                unfit: &unfit,
            };
            new.add(rows, produced).unwrap();
        }
        let encoded = new.finish();
        let counts: Vec<(u64, u64)> = encoded
            .counts
            .map(|column| (column.populated, column.null))
            .collect();
        assert_eq!(counts, [(40, 0), (0, 40), (40, 0)]);
        let bytes = |chunk: ArrowColumnChunk| chunk.close().bytes_written;
        let groups = encoded.groups.into_iter();
        groups
            .map(|group| (group.rows, group.chunks.map(bytes).collect()))
            .collect()
    }

    #[test]
    fn blocks_and_row_groups_end_where_bytes_say_so_however_many_rows_come_at_once() {
        let bounds = |block: u64, block_in_all: u64, group: u64| Bounds {
            block,
            block_in_all,
            group,
        };
        let table = [
            (Bounds::default(), vec![30, 10]),
            (bounds(250, 1 << 20, 1 << 20), vec![30, 10]),
            (bounds(1 << 20, 500, 1 << 20), vec![30, 10]),
            // A row group ends with the row that reaches the bound, or with main's.
            (bounds(250, 1 << 20, 1_200), vec![12, 12, 6, 10]),
            (bounds(1 << 20, 1 << 20, 1_000), vec![10, 10, 10, 10]),
            (bounds(1 << 20, 1 << 20, 1), vec![1; ROWS]),
        ];
        for (bounds, expected) in table {
            let whole = groups(ROWS, bounds);
            let rows: Vec<usize> = whole.iter().map(|(rows, _)| *rows).collect();
            assert_eq!(rows, expected, "{bounds:?}");
            for at_once in [1, 3, 7, 31] {
                assert_eq!(groups(at_once, bounds), whole, "{at_once}, {bounds:?}");
            }
        }
    }
}
