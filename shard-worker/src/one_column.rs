//! A file's footer as if it had but one of its columns.

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::parquet_file::ParquetFile;

/// What texts are to be decoded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texts {
    /// As texts: bytes that are none end the decoding.
    Checked,
    /// As blobs, but for those of maps.
    AsBlobs,
}

/// The footer as if the file had but this column: what the others are is of no concern, and a
/// wide file's schema is not converted once a column.
///
/// # Errors
/// If its type is none that can be.
pub fn alone(
    file: &ParquetFile,
    root: usize,
    texts: Texts,
) -> parquet::errors::Result<Arc<ParquetMetaData>> {
    let whole = file.metadata.file_metadata();
    let column = &file.roots()[root];
    let column = match texts {
        Texts::AsBlobs if !has_map(column) => as_blobs(column)?,
        _ => column.clone(),
    };
    let schema = Arc::new(
        Type::group_type_builder(whole.schema().name())
            .with_fields(vec![column])
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

fn has_map(column: &Type) -> bool {
    let info = column.get_basic_info();
    let is_map = matches!(
        info.converted_type(),
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE
    ) || matches!(info.logical_type_ref(), Some(LogicalType::Map));
    is_map || column.is_group() && column.get_fields().iter().any(|field| has_map(field))
}

/// The same column without a word of texts.
fn as_blobs(column: &TypePtr) -> parquet::errors::Result<TypePtr> {
    let info = column.get_basic_info();
    if let Type::GroupType { fields, .. } = &**column {
        let fields = fields.iter().map(as_blobs).collect::<Result<_, _>>()?;
        let mut group = Type::group_type_builder(info.name())
            .with_converted_type(info.converted_type())
            .with_logical_type(info.logical_type_ref().cloned())
            .with_fields(fields);
        if info.has_repetition() {
            group = group.with_repetition(info.repetition());
        }
        return Ok(Arc::new(group.build()?));
    }
    let is_text = matches!(
        info.converted_type(),
        ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON
    ) || matches!(
        info.logical_type_ref(),
        Some(LogicalType::String | LogicalType::Enum | LogicalType::Json)
    );
    if !is_text || column.get_physical_type() != PhysicalType::BYTE_ARRAY {
        return Ok(column.clone());
    }
    let blob = Type::primitive_type_builder(info.name(), PhysicalType::BYTE_ARRAY)
        .with_repetition(info.repetition());
    Ok(Arc::new(blob.build()?))
}
