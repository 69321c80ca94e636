//! How the Parquet files are written.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow::array::{ArrayRef, RecordBatch, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

pub fn strings(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

pub fn structs(children: &[(&str, ArrayRef)], valid: NullBuffer) -> Result<ArrayRef> {
    let fields: Fields = children
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = children.iter().map(|(_, array)| array.clone()).collect();
    Ok(Arc::new(StructArray::try_new(fields, arrays, Some(valid))?))
}

pub fn zstd() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()))
}

/// Writes beside the file and renames, so that a repaired shard is never half there.
pub fn write_parquet(path: &Path, batch: &RecordBatch, properties: WriterProperties) -> Result<()> {
    let folder = path.parent().context("a shard lies in a folder")?;
    fs::create_dir_all(folder)?;
    let partial = path.with_extension("part");
    let schema: Arc<Schema> = batch.schema();
    let mut writer = ArrowWriter::try_new(File::create(&partial)?, schema, Some(properties))?;
    writer.write(batch)?;
    writer.close()?;
    fs::rename(&partial, path).with_context(|| path.display().to_string())
}
