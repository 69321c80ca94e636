//! However a writer lays the images out, in pages, dictionaries, codecs, with nulls, under a
//! struct: the sidecar is the same.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field};
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use serde_json::json;

use crate::pictures::{
    all_filters, assert_same, columns, jpeg, png, populated, read, spec, texts, write,
    write_plainly,
};
use crate::worker::{Job, prefix};

/// Images of which several are equal, some are missing, and one is no image.
fn images() -> Vec<Option<Vec<u8>>> {
    let mut images: Vec<Option<Vec<u8>>> = (0..14)
        .map(|row| match row {
            3 | 9 => None,
            5 => Some(Vec::new()),
            7 => Some(b"<html>not found</html>".to_vec()),
            _ if row % 2 == 0 => Some(jpeg(row % 6, 40 + row, 30)),
            _ => Some(png(row, 21, 17 + row)),
        })
        .collect();
    images.push(images[0].clone());
    images
}

fn properties() -> parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder().set_max_row_group_row_count(Some(6))
}

#[test]
fn every_layout_gives_the_same_values() {
    let folder = tempfile::tempdir().unwrap();
    let batch = columns("k", &images());
    let main = folder.path().join("main");
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::try_new(3).unwrap()),
        Compression::GZIP(GzipLevel::default()),
    ];
    let mut count = 0;
    for codec in codecs {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for encoding in [
                None,
                Some(Encoding::PLAIN),
                Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
                Some(Encoding::DELTA_BYTE_ARRAY),
            ] {
                let mut layout = properties()
                    .set_compression(codec)
                    .set_writer_version(version)
                    .set_data_page_row_count_limit(4)
                    .set_write_batch_size(2);
                if let Some(encoding) = encoding {
                    layout = layout
                        .set_column_dictionary_enabled(ColumnPath::from("image"), false)
                        .set_column_encoding(ColumnPath::from("image"), encoding);
                }
                write(
                    &main.join(format!("{count:03}.parquet")),
                    &batch,
                    layout.build(),
                );
                count += 1;
            }
        }
    }
    let output = folder.path().join("out");
    let filters = json!({"filters": all_filters()});
    let job = Job::new(
        folder.path(),
        "layouts",
        spec(&prefix(&main), &prefix(&output), filters),
    );
    let outcome = job.run().expect(0);
    assert_eq!(outcome.count("shards_done"), count);

    let first = read(&output.join("000.parquet"));
    let reasons = texts(&first, "filter_errors");
    let expected: Vec<Option<String>> = images()
        .iter()
        .map(|image| match image.as_deref() {
            None | Some([]) => Some("empty".to_owned()),
            Some([b'<', ..]) => Some("undecodable".to_owned()),
            Some(_) => None,
        })
        .collect();
    assert_eq!(reasons, expected);
    let has_values: Vec<bool> = expected.iter().map(Option::is_none).collect();
    assert_eq!(populated(&first, "filter_clarity"), has_values);
    for shard in 1..count {
        let other = read(&output.join(format!("{shard:03}.parquet")));
        assert_same(&other, &first, &format!("shard {shard}"));
    }
}

/// Tools that store images as a struct of bytes and a path.
#[test]
fn images_may_be_in_a_struct() {
    let folder = tempfile::tempdir().unwrap();
    let images = images();
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..images.len()).map(|row| format!("k/{row}")),
    ));
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter(images.iter().map(Option::as_deref)));
    let paths: ArrayRef = Arc::new(StringArray::from_iter(
        (0..images.len()).map(|_| None::<&str>),
    ));
    let field = |name: &str, data_type: DataType| Arc::new(Field::new(name, data_type, true));
    let structs: ArrayRef = Arc::new(StructArray::from(vec![
        (field("path", DataType::Utf8), paths),
        (field("bytes", DataType::Binary), bytes),
    ]));
    let batch = RecordBatch::try_from_iter([("s3_path", keys), ("image", structs)]).unwrap();
    let main = folder.path().join("main");
    write(&main.join("struct.parquet"), &batch, properties().build());
    write_plainly(&main.join("plain.parquet"), "k", &images);
    let output = folder.path().join("out");
    let filters = json!({"filters": ["luma", "edgeDensity"]});
    let spec = spec(&prefix(&main), &prefix(&output), filters);
    Job::new(folder.path(), "struct", spec).run().expect(0);
    let of = |name: &str| {
        let rows = read(&output.join(name));
        let luma = rows.column_by_name("filter_luma").unwrap().clone();
        (luma, texts(&rows, "filter_errors"))
    };
    assert_eq!(of("struct.parquet"), of("plain.parquet"));
}

/// What cannot be streamed fails its shard, says why, and leaves the others alone.
#[test]
fn shards_that_cannot_be_read_fail_alone() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main");
    let good = columns("k", &images());
    write_plainly(&main.join("good.parquet"), "k", &images());
    let brotli = properties()
        .set_compression(Compression::BROTLI(BrotliLevel::default()))
        .build();
    write(&main.join("brotli.parquet"), &good, brotli);
    let without = good.project(&[0]).unwrap();
    write(
        &main.join("without.parquet"),
        &without,
        properties().build(),
    );
    let texts = RecordBatch::try_from_iter([
        ("s3_path", good.column(0).clone()),
        (
            "image",
            Arc::new(arrow::array::Int32Array::from_iter_values(0..15)) as ArrayRef,
        ),
    ]);
    write(
        &main.join("numbers.parquet"),
        &texts.unwrap(),
        properties().build(),
    );
    // The middle of a file of images, turned over.
    let path = main.join("broken.parquet");
    let images: Vec<_> = (0..20).map(|row| Some(jpeg(row, 60, 60))).collect();
    let plain = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(5)
        .set_write_batch_size(1)
        .build();
    write(&path, &columns("k", &images), plain);
    let mut bytes = std::fs::read(&path).unwrap();
    let body = bytes.len() / 20..bytes.len() / 2;
    bytes[body].fill(0xff);
    std::fs::write(&path, bytes).unwrap();

    let output = folder.path().join("out");
    let filters = json!({"filters": ["luma"]});
    let spec = spec(&prefix(&main), &prefix(&output), filters);
    let outcome = Job::new(folder.path(), "broken", spec).run();
    let failures = outcome.failures();
    let reasons = [
        ("brotli.parquet", "write them uncompressed, or with zstd"),
        ("without.parquet", "no image column \"image\""),
        ("numbers.parquet", "holds no bytes"),
        ("broken.parquet", "its image column"),
    ];
    for (shard, reason) in reasons {
        assert!(
            failures[shard].contains(reason),
            "{shard}: {}",
            failures[shard]
        );
    }
    assert_eq!(failures.len(), reasons.len(), "{failures:?}");
    assert_eq!(outcome.count("shards_done"), 1);
}
