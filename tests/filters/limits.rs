//! What an image may cost, and what the report says of those that cost more.

use serde_json::{Value, json};

use crate::pictures::{
    all_filters, jpeg, png, populated, progressive, read, spec, texts, write_plainly,
};
use crate::worker::{Job, Outcome, prefix};

struct Run {
    folder: tempfile::TempDir,
    outcome: Outcome,
}

impl Run {
    /// Runs all filters, with these settings, over one shard of these images.
    fn new(images: &[Option<Vec<u8>>], limits: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| prefix(&folder.path().join(name));
        write_plainly(&folder.path().join("main/a.parquet"), "k", images);
        let filters = json!({"filters": all_filters(), "limits": limits});
        let job = Job::new(
            folder.path(),
            "limits",
            spec(&at("main"), &at("out"), filters),
        );
        let outcome = job.run().expect(0);
        Self { folder, outcome }
    }

    fn reasons(&self) -> Vec<Option<String>> {
        texts(
            &read(&self.folder.path().join("out/a.parquet")),
            "filter_errors",
        )
    }
}

fn some(reason: &str) -> Option<String> {
    Some(reason.to_owned())
}

/// A PNG of a few bytes that says it is enormous.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(1, 8, 8);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    // The first chunk's checksum, anew.
    let mut crc = u32::MAX;
    for byte in &bytes[12..29] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    bytes[29..33].copy_from_slice(&(!crc).to_be_bytes());
    bytes
}

#[test]
fn each_limit_costs_the_rows_beyond_it() {
    let images = [
        Some(jpeg(1, 100, 80)),
        Some(bomb(60_000, 60_000)),
        Some(png(2, 120, 100)),
        Some(jpeg(3, 400, 10)),
        Some(bomb(10_000, 2)),
    ];
    let run = Run::new(
        &images,
        json!({"maxPixels": 11_999, "maxBytes": 100_000_000}),
    );
    let expected = [
        None,
        some("too_large"),
        some("too_large"),
        None,
        some("too_large"),
    ];
    assert_eq!(run.reasons(), expected);
    // Headers are small, and readable.
    let rows = read(&run.folder.path().join("out/a.parquet"));
    assert_eq!(populated(&rows, "filter_exif_rotation"), [true; 5]);
    assert_eq!(
        populated(&rows, "filter_luma"),
        [true, false, false, true, false]
    );

    let bytes = images[0].as_ref().unwrap().len();
    let run = Run::new(&images[..3], json!({"maxBytes": bytes - 1}));
    assert_eq!(run.reasons()[0], some("too_large"));
    let run = Run::new(&images[..1], json!({"maxBytes": bytes}));
    assert_eq!(run.reasons(), [None]);
}

/// Time is judged by work, so that every machine gives the same answer: a progressive image is
/// gone through once a scan.
#[test]
fn too_slow_is_judged_by_pixels_and_scans() {
    let images = [
        Some(jpeg(1, 250, 190)),
        Some(progressive(1, 250, 190)),
        Some(png(1, 250, 210)),
    ];
    let run = Run::new(&images, json!({"maxDecodeMillis": 1}));
    assert_eq!(run.reasons(), [None, some("too_slow"), some("too_slow")]);
    let run = Run::new(&images, json!({"maxDecodeMillis": 100}));
    assert_eq!(run.reasons(), [None, None, None]);
}

/// Scans without end: the last one of a progressive image, again and again.
#[test]
fn endless_scans_cost_their_row() {
    let image = progressive(1, 600, 600);
    let last = memchr::memmem::rfind(&image, b"\xff\xda").unwrap();
    let mut endless = image[..image.len() - 2].to_vec();
    for _ in 0..200 {
        endless.extend_from_slice(&image[last..image.len() - 2]);
    }
    endless.extend_from_slice(b"\xff\xd9");
    let images = [Some(endless), Some(image)];
    let run = Run::new(&images, json!({"maxDecodeMillis": 1000}));
    assert_eq!(run.reasons(), [some("too_slow"), None]);
}

#[test]
fn reports_count_reasons_and_name_the_first_rows() {
    let cut = {
        let mut image = jpeg(5, 64, 64);
        image.truncate(image.len() / 2);
        Some(image)
    };
    let mut images: Vec<Option<Vec<u8>>> = vec![Some(jpeg(1, 32, 32)), None, cut];
    images.extend((0..12).map(|_| Some(b"no image".to_vec())));
    images.push(Some(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf".to_vec()));
    let run = Run::new(&images, json!({}));
    let errors = &run.outcome.report["row_errors"];
    let rows = |reason: &str| errors[reason]["rows"].as_u64();
    assert_eq!(rows("empty"), Some(1));
    assert_eq!(rows("truncated"), Some(1));
    assert_eq!(rows("undecodable"), Some(12));
    assert_eq!(rows("unsupported_format"), Some(1));
    let first: Vec<u64> = errors["undecodable"]["first"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["row"].as_u64().unwrap())
        .collect();
    assert_eq!(first, (3..13).collect::<Vec<u64>>());
    assert!(
        run.outcome.stdout.contains("undecodable"),
        "{}",
        run.outcome.stdout
    );
    assert_eq!(
        run.outcome.count("matched"),
        1,
        "rows whose image could be judged"
    );
    let column = &run.outcome.report["columns"]["filter_luma"];
    assert_eq!(
        (column["populated"].as_u64(), column["null"].as_u64()),
        (Some(1), Some(15))
    );

    // The audit finds the same in the output.
    let audit = run.audit();
    assert_eq!(audit["row_errors"], *errors);
    assert_eq!(audit["matched"], 1);
    assert_eq!(audit["columns"]["filter_luma"], *column);
}

impl Run {
    fn audit(&self) -> Value {
        let job = self.folder.path().join("limits.yaml");
        let report = self.folder.path().join("audit.json");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_shard-worker"))
            .arg("audit")
            .arg(job)
            .arg("--report")
            .arg(&report)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap()
    }
}

/// A GIF whose screen is small and whose first frame is not.
fn wide_frame(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"GIF89a\x08\0\x08\0\x80\0\0\0\0\0\xff\xff\xff".to_vec();
    bytes.extend(b"\x21\xf9\x04\0\0\0\0\0\x2c\0\0\0\0");
    bytes.extend(width.to_le_bytes());
    bytes.extend(height.to_le_bytes());
    bytes.extend(b"\0\x02\x02\x4c\x01\0\x3b");
    bytes
}

/// A decoder makes the whole frame before it cuts it to the screen.
#[test]
fn a_frame_larger_than_its_screen_counts_as_it_is() {
    let images = [Some(wide_frame(1000, 1001)), Some(wide_frame(1000, 999))];
    let reasons = Run::new(&images, json!({"maxPixels": 1_000_000})).reasons();
    assert_eq!(reasons[0], some("too_large"));
    assert_ne!(reasons[1], some("too_large"));
}

/// Memory decides how large an image may be, not whether the run survives.
#[test]
fn small_memory_costs_large_images_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| prefix(&folder.path().join(name));
    let images = [Some(jpeg(1, 100, 80)), Some(bomb(12_000, 12_000))];
    write_plainly(&folder.path().join("main/a.parquet"), "k", &images);
    let filters = json!({"filters": ["luma"]});
    let job = Job::new(
        folder.path(),
        "memory",
        spec(&at("main"), &at("out"), filters),
    );
    let outcome = job
        .run_with(&["--memory", "128MiB", "--threads", "2"])
        .expect(0);
    assert!(
        outcome.stderr.contains("raise --memory"),
        "{}",
        outcome.stderr
    );
    let rows = read(&folder.path().join("out/a.parquet"));
    assert_eq!(texts(&rows, "filter_errors"), [None, some("too_large")]);
}

#[test]
fn wrong_manifests_are_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| prefix(&folder.path().join(name));
    write_plainly(&folder.path().join("main/a.parquet"), "k", &[None]);
    let good = spec(&at("main"), &at("out"), json!({"filters": ["luma"]}));
    let mut without_image = good.clone();
    without_image["dataset"]
        .as_object_mut()
        .unwrap()
        .remove("imageColumn");
    let mut wrong_type = good.clone();
    wrong_type["columns"][0]["type"] = json!("int64");
    let mut wrong_struct = good.clone();
    wrong_struct["columns"] = json!([{"name": "filter_luma", "type": "filter_clarity_v1"}]);
    for (name, spec, words) in [
        ("image", without_image, "dataset.imageColumn"),
        ("errors", wrong_type, "declare it as string"),
        ("struct", wrong_struct, "filter_luma_v1"),
    ] {
        let outcome = Job::new(folder.path(), name, spec).run().expect(2);
        assert!(outcome.stderr.contains(words), "{name}: {}", outcome.stderr);
    }
    Job::new(folder.path(), "good", good).run().expect(0);
}
