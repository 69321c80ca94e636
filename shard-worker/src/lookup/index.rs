//! The index of a join: Parquet files, each a source's or one for all, read row group by row group.

use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Fields};
use parquet::basic::Type as PhysicalType;
use storage::{ObjectMeta, Store};
use tokio::runtime::Handle;

use crate::arrow_types::{check_adaptable, spell};
use crate::column_plan::natural_type;
use crate::error::{Error, Result};
use crate::keys::{self, KeyKind};
use crate::lookup::key_table::Group;
use crate::lookup::unopened;
use crate::lookup::window::RemoteObject;
use crate::parquet_file::{ParquetFile, TailHint};
use crate::sources::Sources;

/// How a declared column is read from an index file.
#[derive(Debug, Clone)]
pub enum ValueReader {
    /// One leaf without repetition.
    Leaf {
        /// Leaf number in the file.
        leaf: usize,
        /// Type in the file.
        natural: Arrow,
        /// Type wanted.
        target: Arrow,
    },
    /// A struct, field by field.
    Struct {
        /// Fields wanted.
        fields: Fields,
        /// Their readers.
        children: Vec<ValueReader>,
    },
    /// A column that only Arrow's record assembly can read (lists, decimals).
    Whole {
        /// Top-level column.
        root: usize,
        /// Type wanted.
        target: Arrow,
    },
    /// The name of the file's source, for an index that does not spell it out.
    SourceName(Arc<str>),
}

/// One file of the index.
#[derive(Debug, Clone)]
pub struct IndexFile {
    /// Footer.
    pub file: ParquetFile,
    /// Where its bytes are.
    pub object: RemoteObject,
    /// Rows of this group look into it.
    pub group: Group,
    /// Leaf of the key column.
    pub key_leaf: usize,
    /// A reader for each column wanted.
    pub columns: Vec<ValueReader>,
}

/// A row group of the index: the unit of work.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    /// Which file.
    pub file: usize,
    /// Which of its row groups.
    pub group: usize,
    /// Its rows.
    pub rows: usize,
}

/// All files of an index, in byte order of their keys.
#[derive(Debug, Clone)]
pub struct Index {
    /// The files.
    pub files: Vec<IndexFile>,
    /// Their row groups: earlier units lose against later ones where a key occurs twice.
    pub units: Vec<Unit>,
    /// Whether each file serves one source only.
    pub by_source: bool,
    /// Estimated bytes of values for one matched row.
    pub value_width: u64,
    /// Rows in all.
    pub rows: u64,
    /// Sources that no file is named after: their rows match nothing.
    pub missing: Vec<String>,
}

/// What to open.
pub struct IndexRequest<'a> {
    /// The URI as the manifest has it, for messages.
    pub uri: &'a str,
    /// Store and objects.
    pub store: Arc<dyn Store>,
    /// The files, in byte order.
    pub objects: Vec<ObjectMeta>,
    /// Whether the URI names a folder.
    pub is_folder: bool,
    /// Key column in the index.
    pub key_column: &'a str,
    /// Columns wanted.
    pub columns: &'a [FieldRef],
    /// Source inference of the dataset.
    pub sources: &'a Sources,
    /// Runtime for reads.
    pub runtime: Handle,
}

impl Index {
    /// Opens every file's footer and checks that it has the key and all the columns.
    pub async fn open(request: IndexRequest<'_>) -> Result<(Self, KeyKind)> {
        if request.objects.is_empty() {
            return Err(Error::side_input(
                request.uri,
                "no index: no Parquet file here; name a file, or a folder with a file a source",
            ));
        }
        let by_source = request.is_folder && !request.sources.is_empty();
        let hint = TailHint::default();
        let mut files = Vec::new();
        let mut kind = None;
        for meta in &request.objects {
            let stem = meta
                .key
                .rsplit('/')
                .next()
                .unwrap_or(&meta.key)
                .trim_end_matches(".parquet");
            let group = if by_source {
                match request.sources.number_of(stem) {
                    Some(group) => group,
                    // A file of a source that no marker leads to can never be looked at.
                    None => {
                        tracing::warn!(file = %meta.key, "no source marker leads to this index file; it is not used");
                        continue;
                    }
                }
            } else {
                0
            };
            let file = ParquetFile::open(&*request.store, meta.clone(), &hint)
                .await
                .map_err(|error| unopened(request.uri, error))?;
            file.check_names()
                .map_err(|error| Error::side_input(request.uri, error))?;
            let (key_leaf, file_kind) = keys::kind_of(&file, request.key_column)
                .map_err(|error| Error::side_input(request.uri, error))?;
            let first_kind: KeyKind = *kind.get_or_insert(file_kind);
            if first_kind == KeyKind::Nothing {
                kind = Some(file_kind);
            }
            if !first_kind.can_equal(file_kind) {
                return Err(Error::side_input(
                    &file.uri,
                    format!(
                        "key column {:?} is {} here, but not in the files before it",
                        request.key_column,
                        file_kind.describe()
                    ),
                ));
            }
            let source_name = by_source.then(|| Arc::from(stem));
            let columns = request
                .columns
                .iter()
                .map(|field| value_reader(&file, field, source_name.as_ref()))
                .collect::<Result<Vec<_>>>()?;
            let object = RemoteObject {
                store: request.store.clone(),
                key: meta.key.clone(),
                etag: meta.etag.clone(),
                size: meta.size,
                runtime: request.runtime.clone(),
            };
            files.push(IndexFile {
                file,
                object,
                group,
                key_leaf,
                columns,
            });
        }
        let Some(kind) = kind else {
            let names = request.sources.names().join(", ");
            return Err(Error::side_input(
                request.uri,
                format!(
                    "no file is named after a source; expected <source>.parquet for one of {names}"
                ),
            ));
        };
        let units: Vec<Unit> = files
            .iter()
            .enumerate()
            .flat_map(|(number, index)| {
                index
                    .file
                    .groups()
                    .map(move |(group, rows)| Unit {
                        file: number,
                        group,
                        rows,
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let rows = units.iter().map(|unit| unit.rows as u64).sum();
        let has_file = |name: &&String| {
            let group = request.sources.number_of(name);
            files.iter().any(|file| Some(file.group) == group)
        };
        let names = request.sources.names().iter();
        let missing = names.filter(|name| by_source && !has_file(name)).cloned();
        let missing: Vec<String> = missing.collect();
        let value_width = files.iter().map(value_width).max().unwrap_or(0);
        Ok((
            Self {
                files,
                units,
                by_source,
                value_width,
                rows,
                missing,
            },
            kind,
        ))
    }
}

impl IndexFile {
    /// The leaves that a column wanted is read from.
    pub fn leaves_of(&self, column: usize) -> Vec<usize> {
        let mut leaves = Vec::new();
        self.columns[column].add_leaves(&self.file, &mut leaves);
        leaves
    }
}

impl ValueReader {
    fn add_leaves(&self, file: &ParquetFile, into: &mut Vec<usize>) {
        match self {
            Self::Leaf { leaf, .. } => into.push(*leaf),
            Self::Struct { children, .. } => {
                children
                    .iter()
                    .for_each(|child| child.add_leaves(file, into));
            }
            Self::Whole { root, .. } => into.extend(file.leaves_of(*root)),
            Self::SourceName(_) => {}
        }
    }
}

/// Bytes a row of the wanted columns takes in memory, from the footer's uncompressed sizes.
fn value_width(index: &IndexFile) -> u64 {
    let columns = 0..index.columns.len();
    let wanted: Vec<usize> = columns.flat_map(|column| index.leaves_of(column)).collect();
    let rows = (index.file.num_rows() as u64).max(1);
    let mut bytes = 0;
    for (group, _) in index.file.groups() {
        let group = index.file.metadata.row_group(group);
        bytes += wanted
            .iter()
            .map(|&leaf| group.column(leaf).uncompressed_size().max(0) as u64)
            .sum::<u64>();
    }
    // Eight bytes of offset or value and a validity bit a leaf, whatever the encoding packed.
    (bytes / rows).max(1) + 9 * wanted.len() as u64
}

fn value_reader(
    file: &ParquetFile,
    field: &FieldRef,
    source_name: Option<&Arc<str>>,
) -> Result<ValueReader> {
    let side_input = |reason: String| Error::side_input(&file.uri, reason);
    let Some(root) = file.root(field.name()) else {
        if let (Some(name), "source", Arrow::LargeUtf8) =
            (source_name, field.name().as_str(), field.data_type())
        {
            return Ok(ValueReader::SourceName(name.clone()));
        }
        return Err(side_input(format!(
            "no column {:?}; its columns are {}",
            field.name(),
            file.column_names()
        )));
    };
    if file.has_int96(root) {
        return Err(side_input(format!(
            "column {:?} is INT96; write it as 64-bit timestamps",
            field.name()
        )));
    }
    let natural = &natural_type(file, root).map_err(|error| side_input(error.to_string()))?;
    check_adaptable(natural, field.data_type())
        .map_err(|reason| side_input(format!("column {:?} {reason}", field.name())))?;
    let leaves = file.leaves_of(root);
    for leaf in leaves.clone() {
        file.check_plain(leaf)
            .map_err(|error| side_input(error.to_string()))?;
    }
    let Some(first) = leaves.clone().next() else {
        return Err(side_input(format!(
            "column {:?} is an empty {}",
            field.name(),
            spell(natural)
        )));
    };
    // Leaves alone don't tell a null struct within another from one of nulls.
    let by_leaves = match natural {
        Arrow::Struct(fields) if fields.iter().any(|field| is_struct(field)) => None,
        _ => leaf_reader(file, first, natural, field.data_type()),
    };
    Ok(by_leaves.unwrap_or_else(|| ValueReader::Whole {
        root,
        target: field.data_type().clone(),
    }))
}

fn is_struct(field: &Field) -> bool {
    matches!(field.data_type(), Arrow::Struct(_))
}

/// A reader that needs no record assembly, if the type allows one. `first` is the first leaf
/// below `natural`.
fn leaf_reader(
    file: &ParquetFile,
    first: usize,
    natural: &Arrow,
    target: &Arrow,
) -> Option<ValueReader> {
    match (natural, target) {
        (Arrow::Struct(natural), Arrow::Struct(fields)) => {
            let mut starts = Vec::with_capacity(natural.len());
            let mut next = first;
            for field in natural {
                starts.push(next);
                next += leaf_count(field.data_type());
            }
            let children = fields.iter().map(|field| {
                let (position, found) = natural.find(field.name())?;
                leaf_reader(file, starts[position], found.data_type(), field.data_type())
            });
            Some(ValueReader::Struct {
                fields: fields.clone(),
                children: children.collect::<Option<Vec<_>>>()?,
            })
        }
        (Arrow::Struct(_), _) | (_, Arrow::Struct(_)) => None,
        _ => {
            let descriptor = file.metadata.file_metadata().schema_descr().column(first);
            let readable = descriptor.max_rep_level() == 0
                && matches!(
                    (natural, descriptor.physical_type()),
                    (Arrow::Boolean, PhysicalType::BOOLEAN)
                        | (
                            Arrow::Int8 | Arrow::Int16 | Arrow::Int32,
                            PhysicalType::INT32
                        )
                        | (
                            Arrow::UInt8 | Arrow::UInt16 | Arrow::UInt32,
                            PhysicalType::INT32
                        )
                        | (Arrow::Date32, PhysicalType::INT32)
                        | (Arrow::Int64 | Arrow::UInt64, PhysicalType::INT64)
                        | (Arrow::Timestamp(_, _), PhysicalType::INT64)
                        | (Arrow::Float32, PhysicalType::FLOAT)
                        | (Arrow::Float64, PhysicalType::DOUBLE)
                        | (Arrow::Utf8 | Arrow::Binary, PhysicalType::BYTE_ARRAY)
                );
            readable.then(|| ValueReader::Leaf {
                leaf: first,
                natural: natural.clone(),
                target: target.clone(),
            })
        }
    }
}

fn leaf_count(data_type: &Arrow) -> usize {
    match data_type {
        Arrow::Struct(fields) => fields
            .iter()
            .map(|field| leaf_count(field.data_type()))
            .sum(),
        Arrow::List(item)
        | Arrow::LargeList(item)
        | Arrow::FixedSizeList(item, _)
        | Arrow::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}
