//! What is wrong with a manifest, said so that it can be mended.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use harness::dataset::{texts, write_table};

use crate::fixture::Fixture;

#[test]
fn unknown_fields_are_named_with_the_nearest_known_one() {
    let fixture = Fixture::new();
    for (from, to, path, meant) in [
        (
            "keyColumn:",
            "keyColum:",
            "spec.dataset.keyColum",
            "keyColumn",
        ),
        (
            "mainPrefix:",
            "main_prefix:",
            "spec.dataset.main_prefix",
            "mainPrefix",
        ),
        (
            "        mode:",
            "        moed:",
            "spec.pipeline[1].joinFromParquet.moed",
            "mode",
        ),
        (
            "filter_clarity_v1",
            "filter_clarty_v1",
            "spec.columns[2].type",
            "filter_clarity_v1",
        ),
        (
            "mode: OverwriteAll",
            "mode: OverwriteAl",
            "spec.pipeline[1].joinFromParquet.mode",
            "OverwriteAll",
        ),
    ] {
        let text = fixture.join().replace(from, to);
        let ended = fixture.run(&text).expect(2);
        ended.says(&["job.yaml", path, meant]);
    }
    assert!(fixture.files("out").is_empty());
}

#[test]
fn every_mistake_is_listed_at_once() {
    let fixture = Fixture::new();
    let text = fixture
        .join()
        .replace("keyColumn:", "keyColum:")
        .replace("        mode:", "        moed:");
    let ended = fixture.run(&text).expect(2);
    ended.says(&["spec.dataset.keyColum", "joinFromParquet.moed", "mistakes"]);
}

#[test]
fn text_that_is_no_yaml_says_where() {
    let fixture = Fixture::new();
    let ended = fixture.run("spec: {dataset: [").expect(2);
    ended.says(&["job.yaml", "not valid YAML", "line"]);
}

#[test]
fn a_column_that_is_not_declared_says_how_to_declare_it() {
    let fixture = Fixture::new();
    let text = fixture
        .join()
        .replace("    - {name: file_size, type: int64}\n", "");
    let ended = fixture.run(&text).expect(2);
    ended.says(&["joinFromParquet", "column", "spec.columns"]);
}

#[test]
fn a_column_that_the_index_lacks_names_file_and_column() {
    let fixture = Fixture::new();
    let text = fixture
        .join()
        .replace("name: file_size", "name: file_bytes")
        .replace("source, file_size", "source, file_bytes");
    let ended = fixture.run(&text).expect(2);
    ended.says(&[
        "index/source_a.parquet",
        "\"file_bytes\"",
        "s3_path, file_size, filter_clarity",
    ]);

    let text = fixture.join().replace(
        "        mode: OverwriteAll",
        "        sourceKeyColumn: path",
    );
    let ended = fixture.run(&text).expect(2);
    ended.says(&["index/", "\"path\"", "s3_path"]);

    let text = fixture.join().replace("type: int64", "type: string");
    let ended = fixture.run(&text).expect(2);
    ended.says(&["index/source_a.parquet", "\"file_size\"", "int64"]);
    assert!(fixture.files("out").is_empty());
}

#[test]
fn an_index_that_cannot_be_used_is_refused_before_anything_is_written() {
    let fixture = Fixture::new();
    let text = fixture.join().replace("/index/", "/indices/");
    fixture
        .run(&text)
        .expect(2)
        .says(&["/indices/", ".parquet"]);
    std::fs::write(fixture.path("index/source_b.parquet"), "garbage").expect("write");
    fixture
        .run(&fixture.join())
        .expect(2)
        .says(&["source_b.parquet"]);
    // A file of a source that no marker leads to is said to be of no use.
    let keys = [
        ("s3_path", texts([Some("a")].into_iter())),
        ("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
    ];
    std::fs::remove_dir_all(fixture.path("index")).expect("remove");
    write_table(&fixture.path("index/elsewhere.parquet"), &keys, 9).expect("write");
    fixture.run(&fixture.join()).expect(2).says(&[
        "elsewhere.parquet",
        "no source marker",
        "source_a, source_b",
    ]);
    assert!(fixture.files("out").is_empty());
}

#[test]
fn an_output_inside_an_input_or_around_it_is_refused() {
    let fixture = Fixture::new();
    let root = fixture.root();
    for (output, input) in [
        ("main/sidecar/", "dataset.mainPrefix"),
        ("main/", "dataset.mainPrefix"),
        ("", "dataset.mainPrefix"),
        ("index/out/", "joinFromParquet.source"),
        ("scores/", "mergeFromSidecar.sourcePrefix"),
        ("captions/new/", "recaptionMerge.source"),
    ] {
        let before = fixture.files("");
        let output = format!("{root}/{output}");
        let worker = fixture.worker("run", &fixture.full());
        let ended = worker.argument("--output-prefix").argument(&output).run();
        ended.expect(2).says(&[input, "output"]);
        let mut after = fixture.files("");
        after.remove("job.yaml");
        let mut before = before;
        before.remove("job.yaml");
        assert!(before == after, "{output} was written to");
    }
}

#[test]
fn the_printed_manifest_is_the_same_job() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let printed = fixture.worker("manifest", &fixture.full()).run().expect(0);
    assert!(printed.stdout.contains("kind: SidecarJob"));
    // The same digest: all is there already.
    let ended = fixture.run(&printed.stdout).expect(0);
    assert!(
        ended.stdout.contains("0 made, 12 there already"),
        "{}",
        ended.stdout
    );
    let wrong = fixture.full().replace("keyColumn:", "keyColum:");
    fixture
        .worker("manifest", &wrong)
        .run()
        .expect(2)
        .says(&["keyColumn"]);
}
