//! Another team's sidecar.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Float64Array, RecordBatch};
use arrow::buffer::NullBuffer;

use crate::parquet_output::{strings, structs, write_parquet, zstd};
use crate::plan::Shard;
use crate::scatter::{chance, mix};

/// The shard that has no scores.
const UNSCORED_SHARD: usize = 33;

/// Another team's sidecar: row-aligned with main, scores of an image model.
pub fn write_scores(root: &Path, shard: &Shard) -> Result<()> {
    if shard.number == UNSCORED_SHARD {
        return Ok(());
    }
    let scores: Vec<Option<f64>> = (0..shard.rows)
        .map(|row| {
            let seed = mix(shard.picture(row), 22 + shard.source as u64);
            (!seed.is_multiple_of(80)).then(|| chance(seed, 0, 23) * 8.0 - 4.0)
        })
        .collect();
    let fields: [(&str, ArrayRef); 3] = [
        ("raw_score", Arc::new(Float64Array::from(scores.clone()))),
        (
            "score",
            Arc::new(Float64Array::from_iter(
                scores
                    .iter()
                    .map(|raw| raw.map(|raw| 10.0 / (1.0 + (-raw).exp()))),
            )),
        ),
        (
            "error",
            strings(
                scores
                    .iter()
                    .map(|raw| raw.is_none().then(|| "timeout".to_owned())),
            ),
        ),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable([
        (
            "image_key",
            strings((0..shard.rows).map(|row| Some(shard.image_key(row)))),
            true,
        ),
        (
            "s3_path",
            strings((0..shard.rows).map(|row| shard.key(row))),
            true,
        ),
        (
            "score_aes",
            structs(&fields, NullBuffer::new_valid(shard.rows))?,
            true,
        ),
    ])?;
    write_parquet(
        &root.join("scores").join(&shard.path),
        &batch,
        zstd().build(),
    )
}
