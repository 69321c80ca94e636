//! Writes a sidecar shard: unchanged columns are copied chunk by chunk, the others encoded.
//!
//! The bytes depend on the inputs and the manifest alone: no time, no host, no thread count,
//! no library version goes into the file.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, LogicalType, Type as PhysicalType, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::arrow_types::count_values;
use crate::column_plan::{PlannedColumn, ShardFiles, Value, passes_unchanged};
use crate::error::ShardError;
use crate::evaluate::{Produced, evaluate};
use crate::levels::{self, Presence};
use crate::parquet_file::ParquetFile;
use crate::provenance::ShardCounts;
use crate::recode::{self, Chunk};
use crate::shard::LoadedShard;
use crate::splice;

/// Version of the sidecar format: what the footer's metadata says and how it is encoded.
pub const FORMAT_VERSION: &str = "1";
/// Key of the format version in the footer.
pub const META_VERSION: &str = "sidecarjob.version";
/// Key of the pipeline digest in the footer.
pub const META_DIGEST: &str = "sidecarjob.digest";
/// Key of the hash of main's footer in the footer.
pub const META_MAIN_FOOTER: &str = "sidecarjob.main_footer_sha256";

/// Footer metadata: how many rows matched, and how many lack a value, per column; as JSON. What
/// a run that is resumed knows of a shard whose line was lost.
pub const META_COUNTS: &str = "sidecarjob.counts";
/// Footer metadata: what the shard was made from beside main, as JSON; absent if that is nothing.
pub const META_INPUTS: &str = "sidecarjob.side_inputs";
/// Who wrote the file, without a version: the same bytes from every release.
pub const CREATED_BY: &str = "sidecarjob shard-worker";

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

/// A finished sidecar shard.
#[derive(Debug)]
pub struct Sidecar {
    /// The whole file.
    pub bytes: Bytes,
    /// Rows.
    pub rows: u64,
    /// Counts of the columns that are not main's alone: declared, or from a sibling.
    pub counts: Vec<ColumnCounts>,
}

/// How one column gets into the file.
enum Column {
    Spliced {
        file: usize,
        root: usize,
    },
    /// Written anew as it is: for each leaf, its chunks in the order of row groups.
    Recoded(Vec<std::vec::IntoIter<Chunk>>),
    Encoded {
        field: FieldRef,
        arrays: Vec<ArrayRef>,
        leaves: usize,
    },
}

/// Builds the sidecar of a shard of which `matched` rows matched. `inputs` is what its footer
/// says of what it was made from beside main.
pub fn sidecar(
    shard: &LoadedShard,
    produced: Produced<'_>,
    digest: &str,
    matched: u64,
    inputs: Option<&str>,
) -> Result<Sidecar, ShardError> {
    let files = &shard.files;
    let main = &files.main;
    let group_rows = main.group_rows();
    let uri = &main.uri;
    let failed = |error: parquet::errors::ParquetError| {
        ShardError::malformed(uri, format!("its sidecar cannot be written: {error}"))
    };

    let mut columns = Vec::with_capacity(shard.plan.columns.len());
    let mut types: Vec<TypePtr> = Vec::with_capacity(shard.plan.columns.len());
    let mut counts = Vec::new();
    for planned in &shard.plan.columns {
        let (column, parquet_type, counted) = column(planned, files, produced, &group_rows)?;
        counts.extend(counted);
        columns.push(column);
        types.push(parquet_type);
    }
    let encoded_types: Vec<TypePtr> = columns
        .iter()
        .zip(&types)
        .filter(|(column, _)| matches!(column, Column::Encoded { .. }))
        .map(|(_, parquet_type)| parquet_type.clone())
        .collect();
    let encoded_fields: Vec<FieldRef> = columns
        .iter()
        .filter_map(|column| match column {
            Column::Encoded { field, .. } => Some(field.clone()),
            Column::Spliced { .. } | Column::Recoded(_) => None,
        })
        .collect();

    let root = message(types).map_err(failed)?;
    let metadata = [
        (META_VERSION, FORMAT_VERSION),
        (META_DIGEST, digest),
        (META_MAIN_FOOTER, &main.footer_sha256),
        (META_COUNTS, &ShardCounts::new(matched, &counts).to_json()),
    ];
    let inputs = inputs.map(|inputs| (META_INPUTS, inputs));
    let metadata = metadata
        .into_iter()
        .chain(inputs)
        .map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()))
        .collect();
    let properties = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_key_value_metadata(Some(metadata))
        .set_offset_index_disabled(true)
        .build();
    let estimate = main.bytes.held() + main.num_rows().min(1 << 20) * 64;
    let mut writer =
        SerializedFileWriter::new(Vec::with_capacity(estimate), root, Arc::new(properties))
            .map_err(failed)?;
    let encoder = Encoder::new(encoded_types, encoded_fields).map_err(failed)?;
    let groups_of = |file: &ParquetFile| file.groups().map(|(group, _)| group).collect::<Vec<_>>();
    let main_groups = groups_of(main);
    let sibling_groups: Vec<Vec<usize>> = files
        .siblings
        .iter()
        .map(|sibling| sibling.as_ref().map(groups_of).unwrap_or_default())
        .collect();

    let mut start = 0;
    for (position, &rows) in group_rows.iter().enumerate() {
        let mut encoded = encoder
            .encode(&columns, start, rows)
            .map_err(failed)?
            .into_iter();
        let mut group = writer.next_row_group().map_err(failed)?;
        for column in &mut columns {
            match column {
                Column::Spliced { file: number, root } => {
                    let Some(file) = files.get(*number) else {
                        continue;
                    };
                    let groups = match *number {
                        0 => &main_groups,
                        sibling => &sibling_groups[sibling - 1],
                    };
                    for leaf in file.leaves_of(*root) {
                        let close =
                            splice::close_result(file, groups[position], leaf).map_err(failed)?;
                        group.append_column(&*file.bytes, close).map_err(failed)?;
                    }
                }
                Column::Recoded(leaves) => {
                    for Chunk { bytes, close } in leaves.iter_mut().filter_map(Iterator::next) {
                        group.append_column(&bytes, close).map_err(failed)?;
                    }
                }
                Column::Encoded { leaves, .. } => {
                    for chunk in encoded.by_ref().take(*leaves) {
                        chunk.append_to_row_group(&mut group).map_err(failed)?;
                    }
                }
            }
        }
        group.close().map_err(failed)?;
        start += rows;
    }
    let bytes = writer.into_inner().map_err(failed)?;
    Ok(Sidecar {
        bytes: Bytes::from(bytes),
        rows: main.num_rows() as u64,
        counts,
    })
}

/// How a column is written, its type, and what is counted of it.
type WrittenColumn = (Column, TypePtr, Option<ColumnCounts>);

/// Decides how a column is written, and evaluates it if it is encoded.
fn column(
    planned: &PlannedColumn,
    files: &ShardFiles,
    produced: Produced<'_>,
    group_rows: &[usize],
) -> Result<WrittenColumn, ShardError> {
    let main = &files.main;
    if let Value::File { file: number, root } = planned.value
        && let Some(file) = files.get(number)
        && passes_unchanged(file, root, planned.declared.as_ref())?
    {
        let parquet_type = file.roots()[root].clone();
        if has_unknown_type(&parquet_type) {
            return Err(ShardError::schema(
                &file.uri,
                format!(
                    "column {:?} has a logical type that this release does not know; drop it with extractScaffold",
                    planned.name
                ),
            ));
        }
        let malformed = |error: &dyn std::fmt::Display| {
            ShardError::malformed(&file.uri, format!("column {:?}: {error}", planned.name))
        };
        let is_own = number > 0 || planned.declared.is_some();
        let anew = match splice::check(file, root, group_rows) {
            Ok(()) if !is_own => {
                levels::check_lists(file, root).map_err(|error| malformed(&error))?;
                None
            }
            Ok(()) => {
                let presence = levels::presence(file, root).map_err(|error| malformed(&error))?;
                // A row without a value holds a struct of nulls, as in every other shard.
                if !presence.null_structs {
                    let counts = counted(&planned.name, presence, file);
                    let column = Column::Spliced { file: number, root };
                    return Ok((column, parquet_type, Some(counts)));
                }
                Some("it has null structs".to_owned())
            }
            Err(reason) => Some(reason),
        };
        let Some(reason) = anew else {
            let column = Column::Spliced { file: number, root };
            return Ok((column, parquet_type, None));
        };
        tracing::debug!(file = %file.uri, column = %planned.name, "written anew: {reason}");
        let recoded = recoding(file, root, parquet_type.clone())
            .and_then(|properties| recode::column(file, root, group_rows, &properties, is_own))
            .map_err(|error| malformed(&error))?;
        let counts = is_own.then(|| counted(&planned.name, recoded.presence, file));
        return Ok((Column::Recoded(recoded.leaves), parquet_type, counts));
    }
    let Some(declared) = &planned.declared else {
        return Err(ShardError::schema(
            &main.uri,
            format!("column {:?} has no declared type", planned.name),
        ));
    };
    let array = evaluate(&planned.value, declared, files, produced)?;
    let parquet_type =
        parquet_type(declared).map_err(|error| ShardError::malformed(&main.uri, error))?;
    let leaves = SchemaDescriptor::new(
        message(vec![parquet_type.clone()])
            .map_err(|error| ShardError::malformed(&main.uri, error))?,
    )
    .num_columns();
    let arrays = vec![array];
    let counts = Some(count(&planned.name, &arrays));
    let column = Column::Encoded {
        field: declared.clone(),
        arrays,
        leaves,
    };
    Ok((column, parquet_type, counts))
}

/// What was counted of a column of a file.
fn counted(name: &str, presence: Presence, file: &ParquetFile) -> ColumnCounts {
    ColumnCounts {
        name: name.to_owned(),
        populated: presence.populated,
        null: (file.num_rows() as u64).saturating_sub(presence.populated),
        errors: presence.errors,
    }
}

/// How a column of a file is encoded when it is written anew.
fn recoding(
    file: &ParquetFile,
    root: usize,
    parquet_type: TypePtr,
) -> parquet::errors::Result<WriterPropertiesPtr> {
    let mut dictionaries = Vec::new();
    for leaf in file.leaves_of(root) {
        dictionaries.push(recode::dictionary_limit(file, leaf)?);
    }
    let schema = SchemaDescriptor::new(message(vec![parquet_type])?);
    Ok(encoding(&schema, &dictionaries))
}

/// Whether a column, or a field of it, is annotated by a newer release of the format: a writer
/// cannot repeat what it does not know.
fn has_unknown_type(column: &Type) -> bool {
    let annotation = column.get_basic_info().logical_type_ref();
    matches!(annotation, Some(LogicalType::_Unknown { .. }))
        || column.is_group()
            && column
                .get_fields()
                .iter()
                .any(|field| has_unknown_type(field))
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

fn count(name: &str, arrays: &[ArrayRef]) -> ColumnCounts {
    let (mut populated, mut errors, mut rows) = (0, 0, 0);
    for array in arrays {
        let (present, failed) = count_values(array);
        populated += present;
        errors += failed;
        rows += array.len() as u64;
    }
    ColumnCounts {
        name: name.to_owned(),
        populated,
        null: rows - populated,
        errors,
    }
}

/// Encodes the columns that are not copied, through a schema of just those.
struct Encoder {
    factory: Option<ArrowRowGroupWriterFactory>,
    schema: SchemaRef,
}

impl Encoder {
    fn new(types: Vec<TypePtr>, fields: Vec<FieldRef>) -> parquet::errors::Result<Self> {
        let schema = Arc::new(Schema::new(fields));
        if types.is_empty() {
            return Ok(Self {
                factory: None,
                schema,
            });
        }
        let root = message(types)?;
        let properties = encoding(&SchemaDescriptor::new(root.clone()), &[]);
        let writer = SerializedFileWriter::new(std::io::sink(), root, properties)?;
        Ok(Self {
            factory: Some(ArrowRowGroupWriterFactory::new(&writer, schema.clone())),
            schema,
        })
    }

    /// Encodes `rows` rows from `start`: a chunk for each leaf, in order.
    fn encode(
        &self,
        columns: &[Column],
        start: usize,
        rows: usize,
    ) -> parquet::errors::Result<Vec<parquet::arrow::arrow_writer::ArrowColumnChunk>> {
        let Some(factory) = &self.factory else {
            return Ok(Vec::new());
        };
        let mut writers = factory.create_column_writers(0)?.into_iter();
        let mut chunks = Vec::new();
        let encoded = columns.iter().filter_map(|column| match column {
            Column::Encoded { arrays, leaves, .. } => Some((arrays, *leaves)),
            Column::Spliced { .. } | Column::Recoded(_) => None,
        });
        for ((arrays, leaves), field) in encoded.zip(self.schema.fields()) {
            let mut column_writers: Vec<_> = writers.by_ref().take(leaves).collect();
            let mut offset = 0;
            for array in arrays {
                let (from, to) = (start.max(offset), (start + rows).min(offset + array.len()));
                if from < to {
                    let slice = array.slice(from - offset, to - from);
                    for (leaf, writer) in compute_leaves(field, &slice)?
                        .iter()
                        .zip(&mut column_writers)
                    {
                        writer.write(leaf)?;
                    }
                }
                offset += array.len();
            }
            for writer in column_writers {
                chunks.push(writer.close()?);
            }
        }
        Ok(chunks)
    }
}

/// Encoding and codec by type, and where a column had a dictionary, that may take so many bytes.
///
/// Metrics are floats whose bits hardly repeat: zstd spends most of a shard's CPU on them to
/// save little. Splitting their bytes into streams leaves the parts that do repeat side by
/// side, and lz4 finds those at ten times the speed, in files no larger than zstd's with a
/// dictionary. Texts gain from zstd.
fn encoding(schema: &SchemaDescriptor, dictionaries: &[Option<usize>]) -> WriterPropertiesPtr {
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
