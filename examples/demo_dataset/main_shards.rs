//! The main shards.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{
    ArrayRef, BinaryArray, Float64Array, Int32Array, ListBuilder, RecordBatch, StringBuilder,
    StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use parquet::basic::Compression;
use parquet::schema::types::ColumnPath;

use crate::parquet_output::{strings, write_parquet, zstd};
use crate::picture::png;
use crate::plan::Shard;
use crate::scatter::{WORDS, chance, mix, sentence};

pub fn write_main(root: &Path, shard: &Shard) -> Result<()> {
    let rows = 0..shard.rows;
    let pictures: Vec<u64> = rows.clone().map(|row| shard.picture(row)).collect();
    let salt = 300 + shard.source as u64;
    let images: Vec<Vec<u8>> = pictures
        .iter()
        .map(|&picture| png(mix(picture, salt)))
        .collect();
    let keys: Vec<Option<String>> = rows.clone().map(|row| shard.key(row)).collect();
    let mut tags = ListBuilder::new(StringBuilder::new());
    for &picture in &pictures {
        for place in 0..mix(picture, salt + 1) % 4 {
            tags.values()
                .append_value(WORDS[(mix(picture, 400 + place) % 16) as usize]);
        }
        tags.append(!mix(picture, salt + 2).is_multiple_of(9));
    }
    let batch = RecordBatch::try_from_iter_with_nullable([
        (
            "image_key",
            strings(rows.clone().map(|row| Some(shard.image_key(row)))),
            true,
        ),
        (
            "image",
            Arc::new(BinaryArray::from_iter_values(images)) as ArrayRef,
            true,
        ),
        ("s3_path", strings(keys.iter().cloned()), true),
        (
            "url",
            strings(keys.iter().map(|key| {
                key.as_ref()
                    .map(|key| key.replace("s3://bucket", "https://images.example"))
            })),
            true,
        ),
        (
            "caption",
            strings(pictures.iter().map(|&picture| {
                (!mix(picture, salt + 3).is_multiple_of(50))
                    .then(|| sentence(picture, 4 + picture % 9))
            })),
            true,
        ),
        (
            "width",
            Arc::new(Int32Array::from(vec![shard.width; shard.rows])) as ArrayRef,
            true,
        ),
        (
            "height",
            Arc::new(Int32Array::from(vec![shard.height; shard.rows])) as ArrayRef,
            true,
        ),
        ("tags", Arc::new(tags.finish()) as ArrayRef, true),
        ("camera", cameras(&pictures)?, true),
    ])?;
    // Pictures are compressed already: doing it again costs time and gains nothing.
    let properties = zstd()
        .set_column_compression(ColumnPath::from("image"), Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(ColumnPath::from("image"), false)
        .set_max_row_group_row_count(Some(256))
        .build();
    write_parquet(&root.join("main").join(&shard.path), &batch, properties)
}

fn cameras(pictures: &[u64]) -> Result<ArrayRef> {
    let degrees = |salt, range: f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(
            pictures
                .iter()
                .map(|&picture| (chance(picture, 0, salt) - 0.5) * range),
        ))
    };
    let coordinates = Fields::from(vec![
        Field::new("lat", DataType::Float64, true),
        Field::new("lon", DataType::Float64, true),
    ]);
    let located = NullBuffer::from_iter(pictures.iter().map(|&picture| mix(picture, 7) % 5 < 2));
    let gps = StructArray::try_new(
        coordinates,
        vec![degrees(8, 180.0), degrees(9, 360.0)],
        Some(located),
    )?;
    let children: Vec<ArrayRef> = vec![
        strings(
            pictures
                .iter()
                .map(|&picture| Some(format!("Maker{}", picture % 5))),
        ),
        Arc::new(Int32Array::from_iter_values(
            pictures
                .iter()
                .map(|&picture| 100 << (mix(picture, 10) % 6)),
        )),
        Arc::new(gps),
    ];
    let fields = Fields::from(vec![
        Field::new("make", DataType::Utf8, true),
        Field::new("iso", DataType::Int32, true),
        Field::new("gps", children[2].data_type().clone(), true),
    ]);
    let known = NullBuffer::from_iter(
        pictures
            .iter()
            .map(|&picture| !mix(picture, 11).is_multiple_of(3)),
    );
    Ok(Arc::new(StructArray::try_new(
        fields,
        children,
        Some(known),
    )?))
}
