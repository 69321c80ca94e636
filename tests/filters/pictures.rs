//! Pictures made here, encoded, and shards full of them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};
use image::ImageEncoder;
use libjpeg_turbo_rs::{PixelFormat, Subsampling};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

/// Samples of a picture with slopes, shapes and noise, in three colours.
pub fn picture(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut noise = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) % 24
    };
    let mut samples = Vec::with_capacity((width * height * 3) as usize);
    for row in 0..height {
        for column in 0..width {
            let disc = (row.abs_diff(height / 2)).pow(2) + (column.abs_diff(width / 3)).pow(2);
            let is_inside = disc < (width / 5).pow(2);
            let tone = if is_inside { 60 } else { 0 };
            for channel in 0..3_u32 {
                let slope =
                    (row * (seed % 5 + 1) + column * (channel + 1)) * 200 / (width + height);
                samples.push((slope + tone + noise()).min(255) as u8);
            }
        }
    }
    samples
}

/// The picture as a JPEG.
pub fn jpeg(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let samples = picture(seed, width, height);
    let (width, height) = (width as usize, height as usize);
    libjpeg_turbo_rs::compress(
        &samples,
        width,
        height,
        PixelFormat::Rgb,
        85,
        Subsampling::S420,
    )
    .unwrap()
}

/// The picture as a progressive JPEG.
pub fn progressive(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let samples = picture(seed, width, height);
    let (width, height) = (width as usize, height as usize);
    libjpeg_turbo_rs::compress_progressive(
        &samples,
        width,
        height,
        PixelFormat::Rgb,
        85,
        Subsampling::S420,
    )
    .unwrap()
}

/// The picture as a PNG.
pub fn png(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    image::codecs::png::PngEncoder::new(&mut bytes)
        .write_image(
            &picture(seed, width, height),
            width,
            height,
            image::ExtendedColorType::Rgb8,
        )
        .unwrap();
    bytes
}

/// The columns of a shard: keys `prefix/0`, `prefix/1`... and images.
pub fn columns(prefix: &str, images: &[Option<Vec<u8>>]) -> RecordBatch {
    let keys = (0..images.len()).map(|row| Some(format!("{prefix}/{row}")));
    let keys: ArrayRef = Arc::new(keys.collect::<StringArray>());
    let images: ArrayRef = Arc::new(BinaryArray::from_iter(images.iter().map(Option::as_deref)));
    RecordBatch::try_from_iter_with_nullable([("s3_path", keys, true), ("image", images, true)])
        .unwrap()
}

/// Writes a shard.
pub fn write(path: &Path, batch: &RecordBatch, properties: WriterProperties) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Writes a shard as it comes.
pub fn write_plainly(path: &Path, prefix: &str, images: &[Option<Vec<u8>>]) {
    write(path, &columns(prefix, images), WriterProperties::default());
}

/// All rows of a sidecar.
pub fn read(path: &Path) -> RecordBatch {
    let file = File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    // The footer's metadata names main's footer, which is another for each layout.
    let schema = reader.schema().as_ref().clone();
    let schema = Arc::new(schema.with_metadata(HashMap::new()));
    let batches: Vec<RecordBatch> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
    arrow::compute::concat_batches(&schema, &batches).unwrap()
}

/// The texts of a column.
pub fn texts(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(column).unwrap();
    let column = column.as_string::<i32>();
    column.iter().map(|text| text.map(str::to_owned)).collect()
}

/// Whether each row of a filter's column has a value; its structs are never null.
pub fn populated(batch: &RecordBatch, column: &str) -> Vec<bool> {
    let column = batch.column_by_name(column).unwrap().as_struct();
    assert_eq!(column.null_count(), 0, "structs are present");
    let passed = column.column_by_name("passed").unwrap();
    (0..column.len()).map(|row| passed.is_valid(row)).collect()
}

/// A spec that computes all filters.
pub fn spec(main: &str, output: &str, filters: Value) -> Value {
    json!({
        "dataset": {"mainPrefix": main, "keyColumn": "s3_path", "imageColumn": "image"},
        "columns": [{"name": "filter_errors", "type": "string"}],
        "pipeline": [{"computeFilters": filters}],
        "output": {"prefix": output},
    })
}

/// The nine names, as the manifest spells them.
pub fn all_filters() -> Value {
    json!([
        "exifRotation",
        "exifMetadata",
        "saturation",
        "jpegArtifact",
        "clarity",
        "texture",
        "luma",
        "colorEntropy",
        "edgeDensity"
    ])
}

/// Compares two sidecars column by column.
#[track_caller]
pub fn assert_same(left: &RecordBatch, right: &RecordBatch, what: &str) {
    assert_eq!(left.schema(), right.schema(), "{what}");
    for (field, (left, right)) in left
        .schema()
        .fields()
        .iter()
        .zip(left.columns().iter().zip(right.columns()))
    {
        assert_eq!(left, right, "{what}: {}", field.name());
    }
}
