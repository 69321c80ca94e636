//! Images that were measured wrongly, or not at all.

use std::io::Write;

use arrow::array::{Array, AsArray, BooleanArray, StructArray};
use arrow::datatypes::{Float64Type, Int32Type};
use harness::dataset::{texts, write_table};
use image::ImageEncoder;

use crate::fixture::{Fixture, Rows};
use crate::made;

const FILTERS: [&str; 5] = [
    "clarity",
    "colorEntropy",
    "luma",
    "edgeDensity",
    "exifRotation",
];

fn job(root: &str) -> String {
    format!(
        "apiVersion: sidecarjob.dev/v1alpha1\nkind: SidecarJob\nmetadata: {{name: pictures}}\nspec:\n  \
         dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path, imageColumn: image}}\n  \
         columns: [{{name: filter_errors, type: string}}]\n  \
         pipeline:\n    - computeFilters: {{filters: [{}]}}\n  output: {{prefix: {root}/out/}}\n",
        FILTERS.join(", ")
    )
}

fn measure(images: Vec<Vec<u8>>) -> Rows {
    let fixture = Fixture::empty();
    write_images(&fixture, images);
    fixture.run(&job(&fixture.root())).expect(0);
    fixture.rows("out/a.parquet")
}

fn write_images(fixture: &Fixture, images: Vec<Vec<u8>>) {
    let images: Vec<Option<Vec<u8>>> = images.into_iter().map(Some).collect();
    let batch = made::columns("row", &images);
    let columns = [
        (
            "s3_path",
            texts((0..images.len()).map(|row| Some(row.to_string()))),
        ),
        ("image", batch.column(1).clone()),
    ];
    write_table(&fixture.path("main/a.parquet"), &columns, 1024).expect("write");
}

fn field<'a>(rows: &'a Rows, column: &str) -> &'a StructArray {
    rows.0
        .column_by_name(column)
        .expect("the column")
        .as_struct()
}

fn orientations(rows: &Rows) -> Vec<Option<i32>> {
    let column = field(rows, "filter_exif_rotation");
    let values = column.column_by_name("orientation").expect("the field");
    values.as_primitive::<Int32Type>().iter().collect()
}

/// A photograph with an archive behind it, whose bytes look like markers, was null: truncated, or
/// too slow.
#[test]
fn what_is_behind_the_end_of_a_jpeg_does_not_count() {
    let pictures = [made::jpeg(1, 61, 47), made::progressive(2, 61, 47)];
    let tails: [Vec<u8>; 5] = [
        b"PK\x03\x04 a scan \xff\xda and no end".to_vec(),
        b"\xff\xda\x00\x08".repeat(5000),
        b"\xff\xd9 an end \xff\xda\xff\xc4\xff\xff".to_vec(),
        vec![0xFF; 100],
        made::jpeg(3, 32, 32),
    ];
    let mut images = Vec::new();
    for picture in &pictures {
        images.push(picture.clone());
        for tail in &tails {
            images.push([picture.as_slice(), tail].concat());
        }
    }
    let rows = measure(images);
    assert_eq!(rows.texts("filter_errors"), vec![None; 12]);
    for filter in ["filter_clarity", "filter_color_entropy", "filter_luma"] {
        let column = field(&rows, filter);
        for picture in 0..2 {
            let first = column.slice(picture * 6, 1);
            for tail in 1..6 {
                let same = column.slice(picture * 6 + tail, 1);
                assert_eq!(same.to_data(), first.to_data(), "{filter} {picture} {tail}");
            }
        }
    }
    // One without an end of its own is cut, whatever follows.
    let picture = &pictures[0];
    let cut = picture[..picture.len() - 40].to_vec();
    let rows = measure(vec![
        cut.clone(),
        [cut, b"\xff\xda\x00\x08".repeat(9)].concat(),
    ]);
    let errors = rows.texts("filter_errors");
    assert!(
        errors
            .iter()
            .all(|error| error.as_deref() == Some("truncated")),
        "{errors:?}"
    );
}

/// Tag 0x0112 with this value, as a little TIFF.
fn block(orientation: u8) -> Vec<u8> {
    let mut block = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    block.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    block
}

/// A PNG with a chunk behind its header.
fn with_chunk(png: &[u8], name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(name);
    crc.update(body);
    let size = u32::try_from(body.len()).expect("a size").to_be_bytes();
    let chunk = [&size, name.as_slice(), body, &crc.sum().to_be_bytes()].concat();
    [&png[..33], &chunk, &png[33..]].concat()
}

/// They counted as upright.
#[test]
fn turned_tiffs_and_pngs_with_a_profile_are_turned() {
    let png = made::png(1, 20, 10);
    let profile = |orientation| {
        let block = [b"Exif\0\0".as_slice(), &block(orientation)].concat();
        let digits: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\nexif\n{:8}\n{digits}\n", block.len())
    };
    let packed = |text: &str| {
        let mut packed = b"Raw profile type exif\0\0".to_vec();
        let mut encoder = flate2::write::ZlibEncoder::new(&mut packed, flate2::Compression::best());
        encoder.write_all(text.as_bytes()).expect("written");
        encoder.finish().expect("packed");
        packed
    };
    let plain = |text: &str| [b"Raw profile type APP1\0".as_slice(), text.as_bytes()].concat();
    let bomb = format!("\nexif\n{:8}\n{}", 1 << 30, "0".repeat(50 << 20));
    let newer = with_chunk(&png, b"eXIf", &block(8));
    let mut tiff = std::io::Cursor::new(Vec::new());
    let picture = made::picture(1, 20, 10);
    image::codecs::tiff::TiffEncoder::new(&mut tiff)
        .write_image(&picture, 20, 10, image::ExtendedColorType::Rgb8)
        .expect("a TIFF");
    let mut turned = tiff.into_inner();
    let plain_tiff = turned.clone();
    // A directory of its own at the end, with the tag among the old ones.
    let at = u32::from_le_bytes(turned[4..8].try_into().expect("four")) as usize;
    let count = usize::from(u16::from_le_bytes(
        turned[at..at + 2].try_into().expect("two"),
    ));
    let mut entries: Vec<Vec<u8>> = turned[at + 2..at + 2 + 12 * count]
        .chunks(12)
        .map(<[u8]>::to_vec)
        .collect();
    entries.push(vec![0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0]);
    entries.sort_by_key(|entry| u16::from_le_bytes([entry[0], entry[1]]));
    let end = u32::try_from(turned.len()).expect("a size").to_le_bytes();
    turned[4..8].copy_from_slice(&end);
    turned.extend(u16::try_from(entries.len()).expect("few").to_le_bytes());
    turned.extend(entries.concat());
    turned.extend([0; 4]);
    let rows = measure(vec![
        png.clone(),
        with_chunk(&png, b"zTXt", &packed(&profile(6))),
        with_chunk(&png, b"tEXt", &plain(&profile(3))),
        with_chunk(&newer, b"zTXt", &packed(&profile(6))),
        with_chunk(&png, b"zTXt", &packed(&bomb)),
        with_chunk(&png, b"zTXt", b"Raw profile type exif\0\0not packed"),
        turned,
        plain_tiff,
    ]);
    assert_eq!(rows.texts("filter_errors"), vec![None; 8]);
    let expected = [None, Some(6), Some(3), Some(8), None, None, Some(6), None];
    assert_eq!(orientations(&rows), expected);
    let passed = field(&rows, "filter_exif_rotation")
        .column_by_name("passed")
        .expect("the field");
    let upright = [true, false, false, false, true, true, false, true];
    assert_eq!(passed.as_boolean(), &BooleanArray::from(upright.to_vec()));
}

/// An uncompressed bitmap.
fn bitmap(seed: u32) -> Vec<u8> {
    let (width, height) = (64_u32, 40_u32);
    let mut bytes = b"BM".to_vec();
    let size = width * height * 3;
    for value in [
        54 + size,
        0,
        54,
        40,
        width,
        height,
        1 | 24 << 16,
        0,
        size,
        0,
        0,
        0,
        0,
    ] {
        bytes.extend(value.to_le_bytes());
    }
    let mut state = seed | 1;
    for _ in 0..size {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Some colours often, most of them rarely.
        bytes
            .push(((state >> 24) as u8).wrapping_mul((state >> 16) as u8 % (seed % 200 + 2) as u8));
    }
    bytes
}

/// The C library has two logarithms, for CPUs with and without FMA, whose last bits differ.
#[test]
fn a_cpu_without_fma_gives_the_same_bytes() {
    let fixture = Fixture::empty();
    write_images(&fixture, (0..600).map(bitmap).collect());
    let text = job(&fixture.root());
    let mut made = Vec::new();
    for tunables in ["", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX,-AVX512F"] {
        let environment = [("GLIBC_TUNABLES", tunables.to_owned())];
        let worker = fixture.worker("run", &text).environment(&environment);
        worker.arguments("--no-skip-existing").run().expect(0);
        made.push(fixture.shards("out"));
    }
    assert!(made[0] == made[1], "bytes depend on the CPU");
    // And they are right.
    let rows = fixture.rows("out/a.parquet");
    let clarity = field(&rows, "filter_clarity");
    let values = |name: &str| {
        let values = clarity.column_by_name(name).expect("the field");
        values.as_primitive::<Float64Type>().clone()
    };
    let (variances, scores) = (values("laplacian_var"), values("score"));
    for (variance, score) in variances.values().iter().zip(scores.values()) {
        assert!(
            (variance.ln_1p() - score).abs() <= 1e-14 * score.abs(),
            "{variance}"
        );
    }
}
