//! What was measured of the pictures, as an index to join from.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch};
use arrow::buffer::NullBuffer;

use crate::parquet_output::{strings, structs, write_parquet, zstd};
use crate::plan::{INDEXED, SHARE, SOURCES, Shard, is_covered, key};
use crate::scatter::{chance, mix};

const INDEX_KEYS: u64 = 200_000;

/// One file a source: each key's file size and two metrics. Keys that no shard has pad it
/// to its size; one key in a hundred comes twice, and the later line is the right one.
pub fn write_index(root: &Path, source: usize, plan: &[Shard]) -> Result<()> {
    let in_shards: u64 = plan
        .iter()
        .filter(|shard| shard.source == source)
        .map(|shard| shard.rows as u64)
        .sum();
    let wanted = INDEX_KEYS * SHARE[source] as u64 / (100 - SHARE[INDEXED]) as u64;
    let covered = (0..in_shards).filter(|&picture| is_covered(source, picture));
    let mut pictures: Vec<(u64, bool)> = covered.map(|picture| (picture, false)).collect();
    let padding = wanted.saturating_sub(pictures.len() as u64);
    pictures.extend((in_shards..in_shards + padding).map(|picture| (picture, false)));
    let corrected: Vec<(u64, bool)> = pictures
        .iter()
        .filter(|(picture, _)| mix(*picture, 12).is_multiple_of(100))
        .map(|&(picture, _)| (picture, true))
        .collect();
    pictures.sort_by_key(|&(picture, _)| mix(picture, 13));
    pictures.extend(corrected);

    let value = |salt: u64| {
        let shift = source as u64;
        pictures
            .iter()
            .map(move |&(picture, again)| chance(picture, shift + 10 * u64::from(again), salt))
    };
    let floats = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
    let integers = |values: Vec<f64>| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(
            values.iter().map(|&v| v as i32),
        ))
    };
    let booleans = |values: Vec<bool>| -> ArrayRef { Arc::new(BooleanArray::from(values)) };

    let sharpness: Vec<f64> = value(14).map(|v| (v * 9.0).exp()).collect();
    let brightness: Vec<f64> = value(15).map(|v| v * 255.0).collect();
    let clarity: [(&str, ArrayRef); 3] = [
        (
            "passed",
            booleans(sharpness.iter().map(|&v| v >= 100.0).collect()),
        ),
        ("laplacian_var", floats(sharpness.clone())),
        (
            "score",
            floats(sharpness.iter().map(|v| v.ln_1p()).collect()),
        ),
    ];
    let luma: [(&str, ArrayRef); 8] = [
        (
            "passed",
            booleans(
                brightness
                    .iter()
                    .map(|v| (20.0..=235.0).contains(v))
                    .collect(),
            ),
        ),
        ("mean", floats(brightness.clone())),
        ("std", floats(value(16).map(|v| v * 90.0).collect())),
        (
            "p05",
            integers(brightness.iter().map(|v| v * 0.3).collect()),
        ),
        ("p50", integers(brightness.clone())),
        (
            "p95",
            integers(brightness.iter().map(|v| v * 0.3 + 178.0).collect()),
        ),
        ("dark_ratio", floats(value(17).map(|v| v.powi(4)).collect())),
        (
            "bright_ratio",
            floats(value(18).map(|v| v.powi(4)).collect()),
        ),
    ];
    // One metric in thirty was never computed.
    let measured = |salt: u64| {
        NullBuffer::from_iter(
            pictures
                .iter()
                .map(|&(picture, _)| !mix(picture, salt).is_multiple_of(30)),
        )
    };
    let keys = pictures
        .iter()
        .map(|&(picture, _)| Some(key(source, picture)));
    let sizes = pictures
        .iter()
        .map(|&(picture, _)| 20_000 + (mix(picture, 19) % 3_000_000) as i64);
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("s3_path", strings(keys), true),
        (
            "source",
            strings(pictures.iter().map(|_| Some(SOURCES[source].to_owned()))),
            true,
        ),
        (
            "file_size",
            Arc::new(Int64Array::from_iter_values(sizes)) as ArrayRef,
            true,
        ),
        ("filter_clarity", structs(&clarity, measured(20))?, true),
        ("filter_luma", structs(&luma, measured(21))?, true),
    ])?;
    let path = root
        .join("index")
        .join(format!("{}.parquet", SOURCES[source]));
    write_parquet(
        &path,
        &batch,
        zstd().set_max_row_group_row_count(Some(32_768)).build(),
    )
}
