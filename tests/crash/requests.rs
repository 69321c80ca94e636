//! What a shard costs in requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int32Array, Int64Array};
use harness::dataset::{Shape, join_job, key, path, texts};
use harness::fault_proxy::FaultProxy;
use storage::{Payload, PutCondition};

use crate::place::Place;
use crate::worker::Worker;

const ROWS: usize = 16;
const IMAGE_BYTES: usize = 150_000;
/// As many shards are looked at in advance, to size chunks.
const SAMPLES: usize = 12;

/// How writers lay out shards: images, which are large beside everything else, lie somewhere in
/// each row group.
struct Layout {
    name: &'static str,
    columns: [&'static str; 4],
    row_groups: usize,
    /// Stretches of a shard between which only images lie, the footer being in the last: nothing
    /// less than a request for each can bring them without images.
    stretches: u64,
}

const LAYOUTS: [Layout; 4] = [
    Layout {
        name: "middle",
        columns: ["s3_path", "image", "width", "caption"],
        row_groups: 1,
        stretches: 2,
    },
    Layout {
        name: "middle_groups",
        columns: ["s3_path", "image", "width", "caption"],
        row_groups: 2,
        stretches: 3,
    },
    Layout {
        name: "first_groups",
        columns: ["image", "s3_path", "width", "caption"],
        row_groups: 2,
        stretches: 2,
    },
    Layout {
        name: "last",
        columns: ["s3_path", "width", "caption", "image"],
        row_groups: 1,
        stretches: 2,
    },
];

fn write_shards(place: &Place, layout: &Layout, main: &str, count: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = place.store(main);
    for shard in 0..count {
        let image = |row: usize| {
            let first = shard * 31 + row * 7;
            (0..IMAGE_BYTES)
                .map(|at| (first + at) as u8)
                .collect::<Vec<u8>>()
        };
        let mut columns: [(&str, ArrayRef); 4] = [
            ("s3_path", texts((0..ROWS).map(|row| key(shard, row)))),
            (
                "image",
                Arc::new(BinaryArray::from_iter_values((0..ROWS).map(image))),
            ),
            (
                "width",
                Arc::new(Int32Array::from_iter_values(0..ROWS as i32)),
            ),
            (
                "caption",
                texts((0..ROWS).map(|row| Some(format!("{shard} {row}")))),
            ),
        ];
        columns.sort_by_key(|(name, _)| layout.columns.iter().position(|column| column == name));
        let file = folder.path().join("shard.parquet");
        write_incompressible(&file, &columns, ROWS / layout.row_groups);
        let payload = Payload::new(std::fs::read(&file).expect("read"));
        let key = path(shard);
        let put = runtime.block_on(store.put(&key, payload, PutCondition::Create));
        put.expect("upload");
    }
}

/// Images do not compress; these, which would, are stored as they are.
fn write_incompressible(file: &std::path::Path, columns: &[(&str, ArrayRef)], group_rows: usize) {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let batch = arrow::array::RecordBatch::try_from_iter(
        columns
            .iter()
            .map(|(name, array)| (*name, Arc::clone(array))),
    );
    let batch = batch.expect("a batch");
    let output = std::fs::File::create(file).expect("create");
    let mut writer = parquet::arrow::ArrowWriter::try_new(output, batch.schema(), Some(properties))
        .expect("a writer");
    writer.write(&batch).expect("write");
    writer.close().expect("close");
}

struct Cost {
    /// From the report, without the pass over the index and without what a run keeps beside
    /// its output.
    get: u64,
    put: u64,
    head: u64,
    bytes_read: u64,
    /// Seen on the wire, a shard.
    gets_of_shard: BTreeMap<String, u64>,
}

fn cost(place: &Place, layout: &Layout, count: usize) -> Cost {
    let main = format!("main_{}_{count}", layout.name);
    write_shards(place, layout, &main, count);
    let output = place.uri(&format!("out_{}_{count}", layout.name));
    let text = join_job(&place.root(), &output).replace("/main/", &format!("/{main}/"));
    let manifest = place.manifest("requests.yaml", &text);
    let report = place.manifest("report.json", "").display().to_string();
    let proxy = FaultProxy::start(place.server().address(), 1);
    let mut environment = place.environment();
    environment.push(("AWS_ENDPOINT_URL_S3", proxy.endpoint()));
    environment.push(("SIDECARJOB_LOCK_TTL_SECONDS", "600".to_owned()));
    let worker = Worker::on("run", &manifest).environment(&environment);
    worker
        .argument("--report")
        .argument(&report)
        .run()
        .expect(0);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).expect("a report")).expect("JSON");
    assert_eq!(report["shards_done"], count);
    let field = |name: &str| report["requests"][name].as_u64().expect("a count");
    let mut gets_of_shard = BTreeMap::new();
    let seen = proxy.seen();
    for request in seen.iter().filter(|seen| seen.method == "GET") {
        if let Some(at) = request.target.find(&format!("/{main}/")) {
            *gets_of_shard
                .entry(request.target[at..].to_owned())
                .or_insert(0) += 1;
        }
    }
    assert_eq!(field("retries"), 0);
    let count = |method: &str, is_wanted: &dyn Fn(&str) -> bool| {
        let seen = seen.iter().filter(|seen| seen.method == method);
        seen.filter(|seen| is_wanted(&seen.target)).count() as u64
    };
    let is_listing = |target: &str| target.contains("list-type") || target.contains("?uploads");
    assert_eq!(field("get"), count("GET", &|target| !is_listing(target)));
    assert_eq!(field("put"), count("PUT", &|_| true));
    let is_index = |target: &str| target.contains("/index/");
    let is_state = |target: &str| target.contains("/_sidecar/");
    Cost {
        // A run that takes long looks at its lock more often.
        get: field("get") - count("GET", &|target| is_index(target) || is_state(target)),
        put: field("put") - count("PUT", &is_state),
        head: field("head"),
        bytes_read: field("bytes_read"),
        gets_of_shard,
    }
}

#[test]
fn a_join_takes_a_get_for_each_stretch_without_images_and_a_put_a_shard() {
    let (few, many) = (14, 26);
    let shape = Shape {
        shards: many,
        rows: ROWS,
        ..Shape::default()
    };
    let Some(place) = Place::bucket(shape) else {
        return;
    };
    for layout in &LAYOUTS {
        let (name, least) = (layout.name, layout.stretches);
        let first = cost(&place, layout, few);
        let second = cost(&place, layout, many);
        let more = (many - few) as u64;
        let (gets, puts) = (second.get - first.get, second.put - first.put);
        println!(
            "{name}: {gets} GET, {puts} PUT, {} HEAD for {more} shards more",
            second.head - first.head
        );
        assert_eq!(gets, least * more, "{name}: GETs for {more} shards");
        assert_eq!(puts, more, "{name}: PUTs for {more} shards");
        assert_eq!(second.head, first.head, "{name}");
        // Images are 2.4 MB a shard; what was read of them is less than a request is worth.
        let bytes = (second.bytes_read - first.bytes_read) / more;
        assert!(bytes < 256 << 10, "{name}: {bytes} bytes a shard");
        // And shard by shard: more only where a shard was a sample as well.
        assert_eq!(second.gets_of_shard.len(), many);
        let above: Vec<_> = second
            .gets_of_shard
            .iter()
            .filter(|(_, gets)| **gets > least)
            .collect();
        assert!(above.len() <= SAMPLES, "{name}: {above:?}");
        assert!(
            above.iter().all(|(_, gets)| **gets <= 2 * least),
            "{name}: {above:?}"
        );
    }
}

/// opendata#338: row groups of a few rows don't cost a round trip each.
#[test]
fn small_row_groups_of_an_index_share_requests() {
    const INDEX_ROWS: usize = 6_000;
    const STEP: usize = 7;
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let keys = |step: usize| {
        let rows = (0..INDEX_ROWS).step_by(step);
        texts(rows.map(|row| Some(format!("s3://photos/raw/{row:08}.jpg"))))
    };
    let sizes: ArrayRef = Arc::new(Int64Array::from_iter_values((0..).take(INDEX_ROWS)));
    let folder = tempfile::tempdir().expect("a folder");
    let upload = |prefix: &str, columns: &[(&str, ArrayRef)], group_rows: usize| {
        let file = folder.path().join("file.parquet");
        write_incompressible(&file, columns, group_rows);
        let payload = Payload::new(std::fs::read(&file).expect("read"));
        let store = place.store(prefix);
        let put = place.block_on(store.put("a.parquet", payload, PutCondition::Create));
        put.expect("upload");
    };
    upload("groups", &[("s3_path", keys(1)), ("file_size", sizes)], 10);
    upload("few", &[("s3_path", keys(STEP))], INDEX_ROWS);
    let text = format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: groups}}
spec:
  dataset: {{mainPrefix: {root}/few/, keyColumn: s3_path}}
  columns: [{{name: file_size, type: int64}}]
  pipeline:
    - joinFromParquet: {{source: {root}/groups/a.parquet, columns: [file_size]}}
  output: {{prefix: {root}/out_of_groups/}}
",
        root = place.root()
    );
    let manifest = place.manifest("groups.yaml", &text);
    let report = place.manifest("groups.json", "").display().to_string();
    let worker = Worker::on("run", &manifest).environment(&place.environment());
    let ended = worker
        .argument("--report")
        .argument(&report)
        .run()
        .expect(0);
    let report = std::fs::read(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let matched = INDEX_ROWS.div_ceil(STEP);
    assert!(
        ended
            .stdout
            .contains(&format!("of which {matched} matched"))
    );
    let gets = report["requests"]["get"].as_u64().expect("a number");
    assert!(gets < 40, "{gets} requests for 600 row groups: {report}");
}
