//! Images made by others to break decoders, among good ones: every row ends as values or as a
//! reason, and the good rows are what they are without the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int32Type};
use serde_json::json;

use crate::pictures::{jpeg, png, populated, read, spec, texts, write_plainly};
use crate::surroundings::shared_folder;
use crate::worker::{Job, prefix};

/// Good rows among the others: every so many.
const EVERY: usize = 40;

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files_below(&path, files);
        } else if path
            .extension()
            .is_none_or(|extension| extension != "parquet")
        {
            files.push(path);
        }
    }
}

fn good(number: usize) -> Vec<u8> {
    let number = number as u32;
    if number.is_multiple_of(2) {
        jpeg(number, 120 + number, 75)
    } else {
        png(number, 64, 50 + number)
    }
}

/// All images of the corpora, with good ones between them, as one dataset.
#[test]
fn corpora_cost_their_own_rows_only() {
    let Some(corpora) = shared_folder("SIDECARJOB_CORPORA", "corpora") else {
        return;
    };
    let mut files = Vec::new();
    for name in ["pillow", "image-rs", "photos"] {
        files_below(&corpora.join(name), &mut files);
    }
    assert!(files.len() > 900, "{} files", files.len());
    let mut images: Vec<Option<Vec<u8>>> = Vec::new();
    let mut names = Vec::new();
    let mut good_rows = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if number % EVERY == 0 {
            good_rows.push(images.len());
            images.push(Some(good(number / EVERY)));
            names.push("good".to_owned());
        }
        images.push(Some(std::fs::read(file).unwrap()));
        names.push(file.strip_prefix(&corpora).unwrap().display().to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_plainly(&at("main/hostile.parquet"), "k", &images);
    let clean: Vec<Option<Vec<u8>>> = (0..good_rows.len())
        .map(|number| Some(good(number)))
        .collect();
    write_plainly(&at("main/clean.parquet"), "k", &clean);
    // Four filters and no huge image: what takes long without optimisation is not the subject.
    let filters = json!({
        "filters": ["exifRotation", "exifMetadata", "luma", "saturation"],
        "limits": {"maxPixels": 1_500_000},
    });
    let spec = spec(&prefix(&at("main")), &prefix(&at("out")), filters);
    let outcome = Job::new(folder.path(), "hostile", spec).run().expect(0);
    assert_eq!(outcome.count("shards_done"), 2);

    let hostile = read(&at("out/hostile.parquet"));
    let clean = read(&at("out/clean.parquet"));
    for field in hostile
        .schema()
        .fields()
        .iter()
        .filter(|field| field.name().starts_with("filter_"))
    {
        let [hostile, clean] =
            [&hostile, &clean].map(|rows| rows.column_by_name(field.name()).unwrap().clone());
        for (number, row) in good_rows.iter().enumerate() {
            assert_eq!(
                &hostile.slice(*row, 1),
                &clean.slice(number, 1),
                "{}",
                field.name()
            );
        }
    }
    let reasons = texts(&hostile, "filter_errors");
    let has_luma = populated(&hostile, "filter_luma");
    let mut by_name: BTreeMap<&str, (Option<&str>, Option<f64>)> = BTreeMap::new();
    let mean = hostile.column_by_name("filter_luma").unwrap().as_struct();
    let mean = mean
        .column_by_name("mean")
        .unwrap()
        .as_primitive::<Float64Type>();
    for (row, name) in names.iter().enumerate() {
        assert_eq!(
            has_luma[row],
            reasons[row].is_none(),
            "{name}: {:?}",
            reasons[row]
        );
        let mean = mean.is_valid(row).then(|| mean.value(row));
        by_name.insert(name, (reasons[row].as_deref(), mean));
    }

    // What other programs say of some of them.
    let image = |name: &str| by_name[format!("pillow/Tests/images/{name}").as_str()];
    for (name, reason) in [
        ("truncated_jpeg.jpg", "truncated"),
        ("truncated_image.png", "truncated"),
        ("zero_width.gif", "undecodable"),
        ("avif/hopper.avif", "unsupported_format"),
        ("hopper.ppm", "unsupported_format"),
    ] {
        assert_eq!(image(name).0, Some(reason), "{name}");
    }
    for (name, expected) in [
        ("truncated_app14.jpg", 11.4),
        ("pil_sample_cmyk.jpg", 12.9),
        ("hopper_16bit_qtables.jpg", image("hopper.jpg").1.unwrap()),
    ] {
        let mean = image(name).1.unwrap();
        assert!((mean - expected).abs() < 2.0, "{name}: {mean}");
    }
}

/// One picture in every orientation that cameras write, and in some that they should not.
#[test]
fn orientations_are_read_and_not_applied() {
    let plain = jpeg(3, 96, 64);
    let with_tag = |kind: u16, count: u32, value: [u8; 4]| {
        let mut block = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12".to_vec();
        block.extend(kind.to_be_bytes());
        block.extend(count.to_be_bytes());
        block.extend(value);
        block.extend([0; 4]);
        let mut image = plain[..2].to_vec();
        image.extend([0xff, 0xe1]);
        image.extend((block.len() as u16 + 2).to_be_bytes());
        image.extend(block);
        image.extend(&plain[2..]);
        Some(image)
    };
    let mut images: Vec<Option<Vec<u8>>> =
        (0..=9).map(|tag| with_tag(3, 1, [0, tag, 0, 0])).collect();
    images.push(with_tag(2, 2, *b"6\0\0\0"));
    images.push(with_tag(3, 2, [0, 6, 0, 1]));
    images.push(Some(plain.clone()));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_plainly(&at("main/a.parquet"), "k", &images);
    let filters = json!({"filters": ["exifRotation", "clarity"]});
    let spec = spec(&prefix(&at("main")), &prefix(&at("out")), filters);
    Job::new(folder.path(), "orientation", spec).run().expect(0);
    let rows = read(&at("out/a.parquet"));
    let column = rows
        .column_by_name("filter_exif_rotation")
        .unwrap()
        .as_struct();
    let numbers = |name: &str| -> Vec<Option<i32>> {
        let field = column.column_by_name(name).unwrap();
        field.as_primitive::<Int32Type>().iter().collect()
    };
    let some = |range: std::ops::RangeInclusive<i32>| range.map(Some);
    let mut expected = vec![None];
    expected.extend(some(1..=8));
    expected.extend([None, None, Some(6), None]);
    assert_eq!(numbers("orientation"), expected);
    let rotations = [0, 0, 0, 180, 180, 270, 90, 90, 270, 0, 0, 90, 0].map(Some);
    assert_eq!(numbers("rotation"), rotations);
    // Pixels are taken as they are stored.
    let clarity = rows.column_by_name("filter_clarity").unwrap();
    for row in 1..images.len() {
        assert_eq!(&clarity.slice(row, 1), &clarity.slice(0, 1), "row {row}");
    }
}
