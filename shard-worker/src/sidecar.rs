//! Writes a sidecar shard: unchanged columns are copied chunk by chunk, between those that were
//! encoded.
//!
//! The bytes depend on the inputs and the manifest alone: no time, no host, no thread count,
//! no library version goes into the file.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::LogicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::column_plan::{PlannedColumn, ShardFiles, Value, passes_unchanged};
use crate::encode::{
    Bounds, CREATED_BY, ColumnCounts, Encoded, NewColumns, NewGroup, cannot_be_written, encoding,
    message, parquet_type,
};
use crate::error::ShardError;
use crate::evaluate::Produced;
use crate::levels::{self, Presence};
use crate::parquet_file::ParquetFile;
use crate::provenance::{
    FORMAT_VERSION, META_COUNTS, META_DIGEST, META_INPUTS, META_MAIN_FOOTER, META_VERSION,
    ShardCounts,
};
use crate::recode::{self, Chunk};
use crate::shard::LoadedShard;
use crate::splice;

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
    /// So many leaves of what was encoded.
    Encoded(usize),
}

/// Builds the sidecar of a shard while what its rows hold is found out.
pub struct SidecarBuilder<'a> {
    shard: &'a LoadedShard,
    /// For each column, whether a file has it as it is, and where.
    unchanged: Vec<Option<(usize, usize)>>,
    new: NewColumns<'a>,
}

impl<'a> SidecarBuilder<'a> {
    /// Begins with the first row.
    ///
    /// # Errors
    /// If a column has no declaration, or a file's values cannot be read.
    pub fn new(shard: &'a LoadedShard) -> Result<Self, ShardError> {
        let files = &shard.files;
        let mut unchanged = Vec::with_capacity(shard.plan.columns.len());
        for planned in &shard.plan.columns {
            let place = match planned.value {
                Value::File { file: number, root } => match files.get(number) {
                    Some(file) if passes_unchanged(file, root, planned.declared.as_ref())? => {
                        Some((number, root))
                    }
                    _ => None,
                },
                _ => None,
            };
            unchanged.push(place);
        }
        let columns = shard.plan.columns.iter().zip(&unchanged);
        let new: Vec<&PlannedColumn> = columns
            .filter(|(_, place)| place.is_none())
            .map(|(planned, _)| planned)
            .collect();
        let new = NewColumns::open(files, &new, Bounds::default())?;
        Ok(Self {
            shard,
            unchanged,
            new,
        })
    }

    /// Adds the next rows.
    ///
    /// # Errors
    /// If values cannot be read, brought into the declared type, or encoded.
    pub fn add(&mut self, rows: Range<usize>, produced: Produced<'_>) -> Result<(), ShardError> {
        self.new.add(rows, produced)
    }

    /// The sidecar of the shard, of which `matched` rows matched, once all rows were added. `inputs`
    /// is what its footer says of what it was made from beside main.
    ///
    /// # Errors
    /// If a column of a file cannot be read.
    pub fn finish(
        self,
        digest: &str,
        matched: u64,
        inputs: Option<&str>,
    ) -> Result<Sidecar, ShardError> {
        let files = &self.shard.files;
        let main = &files.main;
        let failed = |error: ParquetError| cannot_be_written(&main.uri, &error);
        let Encoded {
            groups,
            counts: mut encoded,
        } = self.new.finish();
        let group_rows: Vec<usize> = groups.iter().map(|group| group.rows).collect();

        let mut columns = Vec::with_capacity(self.unchanged.len());
        let mut types: Vec<TypePtr> = Vec::with_capacity(self.unchanged.len());
        let mut counts = Vec::new();
        for (planned, place) in self.shard.plan.columns.iter().zip(&self.unchanged) {
            match (place, &planned.declared) {
                (&Some((number, root)), _) => {
                    let (column, written, counted) =
                        unchanged(planned, files, number, root, &group_rows)?;
                    counts.extend(counted);
                    columns.push(column);
                    types.push(written);
                }
                (None, Some(declared)) => {
                    let written = parquet_type(declared).map_err(failed)?;
                    let alone = message(vec![written.clone()]).map_err(failed)?;
                    counts.extend(encoded.next());
                    let leaves = SchemaDescriptor::new(alone).num_columns();
                    columns.push(Column::Encoded(leaves));
                    types.push(written);
                }
                (None, None) => {}
            }
        }
        let root = message(types).map_err(failed)?;
        let properties = properties(main, digest, matched, &counts, inputs);
        let size = size_of(&columns, &groups, files);
        let mut writer = SerializedFileWriter::new(Vec::with_capacity(size), root, properties)
            .map_err(failed)?;
        write_groups(&mut writer, columns, groups, files).map_err(failed)?;
        let bytes = writer.into_inner().map_err(failed)?;
        Ok(Sidecar {
            bytes: Bytes::from(bytes),
            rows: main.num_rows() as u64,
            counts,
        })
    }
}

/// What a sidecar's footer says of how it was made.
fn properties(
    main: &ParquetFile,
    digest: &str,
    matched: u64,
    counts: &[ColumnCounts],
    inputs: Option<&str>,
) -> WriterPropertiesPtr {
    let metadata = [
        (META_VERSION, FORMAT_VERSION),
        (META_DIGEST, digest),
        (META_MAIN_FOOTER, &main.footer_sha256),
        (META_COUNTS, &ShardCounts::new(matched, counts).to_json()),
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
        .set_offset_index_disabled(true);
    Arc::new(properties.build())
}

/// About how many bytes the file will have, a little more rather than less: one that outgrows its
/// room is held twice.
fn size_of(columns: &[Column], groups: &[NewGroup], files: &ShardFiles) -> usize {
    let (mut bytes, mut chunks) = (0, 0);
    for column in columns {
        match column {
            Column::Spliced { file, root } => {
                let Some(file) = files.get(*file) else {
                    continue;
                };
                for (group, _) in file.groups() {
                    for leaf in file.leaves_of(*root) {
                        let chunk = file.metadata.row_group(group).column(leaf);
                        bytes += usize::try_from(chunk.compressed_size()).unwrap_or(0);
                        chunks += 1;
                    }
                }
            }
            Column::Recoded(leaves) => {
                let all = leaves.iter().flat_map(|leaf| leaf.as_slice());
                for chunk in all {
                    bytes += chunk.bytes.len();
                    chunks += 1;
                }
            }
            Column::Encoded(_) => {}
        }
    }
    for chunk in groups.iter().flat_map(|group| group.chunks.as_slice()) {
        bytes += chunk.close().bytes_written as usize;
        chunks += 1;
    }
    bytes + chunks * 256 + (64 << 10)
}

fn write_groups(
    writer: &mut SerializedFileWriter<Vec<u8>>,
    mut columns: Vec<Column>,
    groups: Vec<NewGroup>,
    files: &ShardFiles,
) -> parquet::errors::Result<()> {
    let groups_of = |file: &ParquetFile| file.groups().map(|(group, _)| group).collect::<Vec<_>>();
    let main_groups = groups_of(&files.main);
    let sibling_groups: Vec<Vec<usize>> = files
        .siblings
        .iter()
        .map(|sibling| sibling.as_ref().map(groups_of).unwrap_or_default())
        .collect();
    for (position, mut encoded) in groups.into_iter().enumerate() {
        let mut group = writer.next_row_group()?;
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
                        let close = splice::close_result(file, groups[position], leaf)?;
                        group.append_column(&*file.bytes, close)?;
                    }
                }
                Column::Recoded(leaves) => {
                    for Chunk { bytes, close } in leaves.iter_mut().filter_map(Iterator::next) {
                        group.append_column(&bytes, close)?;
                    }
                }
                Column::Encoded(leaves) => {
                    for chunk in encoded.chunks.by_ref().take(*leaves) {
                        chunk.append_to_row_group(&mut group)?;
                    }
                }
            }
        }
        group.close()?;
    }
    Ok(())
}

/// How a column is written, its type, and what is counted of it.
type WrittenColumn = (Column, TypePtr, Option<ColumnCounts>);

/// A column that a file has as it is: copied, or written anew where it can't be.
fn unchanged(
    planned: &PlannedColumn,
    files: &ShardFiles,
    number: usize,
    root: usize,
    group_rows: &[usize],
) -> Result<WrittenColumn, ShardError> {
    let Some(file) = files.get(number) else {
        let reason = format!("column {:?}: its file is missing", planned.name);
        return Err(ShardError::schema(&files.main.uri, reason));
    };
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
    Ok((Column::Recoded(recoded.leaves), parquet_type, counts))
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
