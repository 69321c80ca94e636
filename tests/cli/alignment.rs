//! Siblings that do not line up with main.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use harness::dataset::{image_key, key, path, structure, texts, write_table};

use crate::fixture::Fixture;

const ROWS: usize = 20;

/// A sibling with these keys, every score 7.
fn write_sibling(fixture: &Fixture, shard: usize, keys: &[Option<String>]) {
    let sevens = || Arc::new(Float64Array::from(vec![7.0; keys.len()])) as ArrayRef;
    let errors = texts(keys.iter().map(|_| None::<&str>));
    let score = structure(&[
        ("raw_score", sevens()),
        ("score", sevens()),
        ("error", errors),
    ]);
    let columns = [
        ("image_key", texts(keys.iter().map(Option::as_ref))),
        ("score_aes", score),
    ];
    write_table(&fixture.path("scores").join(path(shard)), &columns, 8).expect("write");
}

/// A main shard with these keys to align by.
fn write_main(fixture: &Fixture, shard: usize, keys: &[Option<String>]) {
    let columns = [
        ("s3_path", texts((0..keys.len()).map(|row| key(shard, row)))),
        ("image_key", texts(keys.iter().map(Option::as_ref))),
        ("caption", texts(keys.iter().map(|_| None::<&str>))),
    ];
    write_table(&fixture.path("main").join(path(shard)), &columns, 8).expect("write");
}

fn keys(shard: usize) -> Vec<Option<String>> {
    (0..ROWS).map(|row| Some(image_key(shard, row))).collect()
}

#[test]
fn siblings_that_do_not_line_up_fail_their_shard_and_say_where() {
    let fixture = Fixture::new();
    let mut short = keys(0);
    short.pop();
    write_sibling(&fixture, 0, &short);
    let mut other = keys(1);
    other[13] = Some("another".to_owned());
    write_sibling(&fixture, 1, &other);
    let mut swapped = keys(2);
    swapped.swap(4, 5);
    write_sibling(&fixture, 2, &swapped);
    let mut null = keys(3);
    null[6] = None;
    write_sibling(&fixture, 3, &null);
    write_main(&fixture, 3, &null);
    let mut null_here = keys(4);
    null_here[9] = None;
    write_sibling(&fixture, 4, &null_here);
    let mut long = keys(5);
    long.push(Some("extra".to_owned()));
    write_sibling(&fixture, 5, &long);

    let (ended, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    let failures = report["failures"].as_array().expect("a list");
    for (shard, words) in [
        (0, vec!["not aligned", "19 rows", "20"]),
        (1, vec!["not aligned", "row 13", "another", "0001-0013"]),
        (2, vec!["not aligned", "row 4", "0002-0004", "0002-0005"]),
        (3, vec!["not aligned", "row 6", "null"]),
        (4, vec!["not aligned", "row 9", "null", "0004-0009"]),
        (5, vec!["not aligned", "21 rows", "20"]),
    ] {
        let failure = failures
            .iter()
            .find(|failure| failure["path"] == path(shard).as_str());
        let reason = failure
            .and_then(|failure| failure["reason"].as_str())
            .unwrap_or_default();
        for word in words {
            let is_said = reason.to_lowercase().contains(word);
            assert!(is_said, "shard {shard}: {word:?} is not in {reason:?}");
        }
        assert!(ended.stdout.contains(reason));
        assert!(
            !fixture.path("out").join(path(shard)).exists(),
            "shard {shard} was published"
        );
    }
    assert_eq!(failures.len(), 6, "{failures:#?}");
    assert_eq!(fixture.shards("out").len(), 6);
}

#[test]
fn a_missing_sibling_passes_only_where_it_may() {
    let fixture = Fixture::new();
    // Shard 9 has none, and the job allows it.
    fixture.run(&fixture.full()).expect(0);
    let scores = fixture
        .rows(&format!("out/{}", path(9)))
        .floats_in("score_aes", "score");
    assert_eq!(scores, [None; ROWS]);

    let strict = fixture.full().replace("        required: false\n", "");
    let output = format!("{}/strict/", fixture.root());
    let worker = fixture
        .worker("run", &strict)
        .argument("--output-prefix")
        .argument(&output);
    let (_, report) = fixture.report(worker, 1);
    let failures = report["failures"].as_array().expect("a list");
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0]["path"], path(9));
    let reason = failures[0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("/scores/") && reason.contains("required: false"),
        "{reason}"
    );
    assert_eq!(fixture.shards("strict").len(), 11);
}

/// A file of the same name in another folder is another shard.
#[test]
fn a_sibling_of_the_same_name_elsewhere_is_not_taken() {
    let fixture = Fixture::new();
    let (here, there) = (
        fixture.path("scores").join(path(0)),
        fixture.path("scores/0000.parquet"),
    );
    std::fs::rename(here, there).expect("rename");
    let strict = fixture.full().replace("        required: false\n", "");
    let (_, report) = fixture.report(fixture.worker("run", &strict), 1);
    let failures = report["failures"].as_array().expect("a list");
    let failed: Vec<&str> = failures
        .iter()
        .filter_map(|failure| failure["path"].as_str())
        .collect();
    assert_eq!(failed, [path(0).as_str(), path(9).as_str()]);
}
