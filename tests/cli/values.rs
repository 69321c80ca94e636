//! What is in the sidecar, row by row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Field;
use harness::dataset::{
    INDEXED_SOURCES, SOURCES, Shape, caption, file_size, has_scores, image_key, key, path,
    raw_score, recaption, texts, write_index_file, write_table,
};

use crate::fixture::Fixture;

const SHARDS: usize = 12;
const ROWS: usize = 20;

fn text(value: Option<String>) -> Option<String> {
    value.filter(|text| !text.trim().is_empty())
}

#[test]
fn every_row_keeps_its_slot_with_what_belongs_to_it() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let mut unmatched = 0;
    for shard in 0..SHARDS {
        let rows = fixture.rows(&format!("out/{}", path(shard)));
        let of = |value: &dyn Fn(usize) -> Option<String>| (0..ROWS).map(value).collect::<Vec<_>>();
        assert_eq!(
            rows.columns(),
            [
                "s3_path",
                "image_key",
                "width",
                "caption",
                "source",
                "file_size",
                "filter_clarity",
                "score_aes"
            ]
        );
        assert_eq!(rows.texts("s3_path"), of(&|row| key(shard, row)));
        assert_eq!(
            rows.texts("image_key"),
            of(&|row| Some(image_key(shard, row)))
        );
        let sizes: Vec<Option<i64>> = (0..ROWS).map(|row| file_size(shard, row)).collect();
        unmatched += sizes.iter().filter(|size| size.is_none()).count();
        assert_eq!(rows.integers("file_size"), sizes, "shard {shard}");
        let source = SOURCES[shard % SOURCES.len()];
        assert_eq!(
            rows.texts("source"),
            of(&|row| sizes[row].map(|_| source.to_owned())),
            "shard {shard}"
        );
        let clarity: Vec<Option<f64>> = sizes
            .iter()
            .map(|size| size.map(|size| size as f64))
            .collect();
        assert_eq!(
            rows.floats_in("filter_clarity", "score"),
            clarity,
            "shard {shard}"
        );
        let scores: Vec<Option<f64>> = (0..ROWS)
            .map(|row| raw_score(shard, row).filter(|_| has_scores(shard)))
            .collect();
        assert_eq!(
            rows.floats_in("score_aes", "raw_score"),
            scores,
            "shard {shard}"
        );
    }
    assert!(unmatched > SHARDS * ROWS / SOURCES.len() * (SOURCES.len() - INDEXED_SOURCES));
}

#[test]
fn a_blank_text_never_replaces_a_text() {
    for mode in ["Always", "IfNull"] {
        let fixture = Fixture::new();
        fixture
            .run(
                &fixture
                    .full()
                    .replace("mode: Always", &format!("mode: {mode}")),
            )
            .expect(0);
        for shard in 0..SHARDS {
            let rows = fixture.rows(&format!("out/{}", path(shard)));
            let found = rows.texts("caption").into_iter().map(text);
            for (row, found) in found.enumerate() {
                let (old, new) = (text(caption(shard, row)), text(recaption(shard, row)));
                let expected = if mode == "Always" {
                    new.or(old)
                } else {
                    old.or(new)
                };
                assert_eq!(found, expected, "{mode}, shard {shard}, row {row}");
            }
        }
    }
}

#[test]
fn update_if_null_fills_what_is_empty_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.run(&fixture.join()).expect(0);
    // The output becomes main: rows that matched have values, the others have structs of nulls.
    std::fs::rename(fixture.path("main"), fixture.path("first")).expect("rename");
    std::fs::create_dir(fixture.path("main")).expect("a folder");
    for source in SOURCES {
        std::fs::rename(
            fixture.path("out").join(source),
            fixture.path("main").join(source),
        )
        .expect("rename");
    }
    std::fs::remove_dir_all(fixture.path("out")).expect("remove");
    for (number, source) in SOURCES.iter().enumerate().take(INDEXED_SOURCES) {
        let shards = (number..SHARDS).step_by(SOURCES.len());
        let keys = shards.flat_map(|shard| (0..ROWS).filter_map(move |row| key(shard, row)));
        let rows: Vec<(String, i64)> = keys.map(|key| (key, 777_777)).collect();
        write_index_file(
            &fixture.path("index").join(format!("{source}.parquet")),
            &rows,
        )
        .expect("write");
    }
    fixture
        .run(&fixture.join().replace("OverwriteAll", "UpdateIfNull"))
        .expect(0);
    let mut filled = 0;
    for shard in 0..SHARDS {
        let rows = fixture.rows(&format!("out/{}", path(shard)));
        let expected: Vec<Option<i64>> = (0..ROWS)
            .map(|row| {
                let is_indexed =
                    shard % SOURCES.len() < INDEXED_SOURCES && key(shard, row).is_some();
                file_size(shard, row).or(is_indexed.then_some(777_777))
            })
            .collect();
        filled += expected
            .iter()
            .filter(|size| **size == Some(777_777))
            .count();
        assert_eq!(rows.integers("file_size"), expected, "shard {shard}");
        let clarity: Vec<Option<f64>> = expected
            .iter()
            .map(|size| size.map(|size| size as f64))
            .collect();
        assert_eq!(
            rows.floats_in("filter_clarity", "score"),
            clarity,
            "shard {shard}"
        );
    }
    assert!(filled > 10, "{filled}");
}

#[test]
fn fill_missing_adds_and_prefer_sidecar_overwrites() {
    for (mode, wins) in [("FillMissing", "main"), ("PreferSidecar", "sidecar")] {
        let fixture = Fixture::of(Shape {
            shards: 3,
            ..Shape::default()
        });
        // The siblings bring a caption as well, and width, which is not asked for.
        for shard in 0..3 {
            let keys = texts((0..ROWS).map(|row| Some(image_key(shard, row))));
            let captions = texts((0..ROWS).map(|row| Some(format!("sibling {row}"))));
            let columns = [
                ("image_key", keys),
                ("caption", captions.clone()),
                ("extra", captions.clone()),
                ("width", captions),
            ];
            write_table(&fixture.path("scores").join(path(shard)), &columns, 8).expect("write");
        }
        let job = fixture.full();
        let (head, _) = job
            .split_once("    - recaptionMerge")
            .expect("the last step");
        let text = format!("{head}  output: {{prefix: {}/out/}}\n", fixture.root());
        let text = text
            .replace("columns: [score_aes]", "columns: [caption, extra]")
            // Each shard has a sibling; where one has none the columns would have to be declared.
            .replace("required: false", "required: true")
            .replace("mode: PreferSidecar", &format!("mode: {mode}"));
        fixture.run(&text).expect(0);
        for shard in 0..3 {
            let rows = fixture.rows(&format!("out/{}", path(shard)));
            for row in 0..ROWS {
                let sibling = Some(format!("sibling {row}"));
                let expected = if wins == "main" {
                    caption(shard, row)
                } else {
                    sibling.clone()
                };
                assert_eq!(
                    rows.texts("caption")[row],
                    expected,
                    "{mode}, shard {shard}, row {row}"
                );
                assert_eq!(rows.texts("extra")[row], sibling);
            }
        }
    }
}

/// Files in byte order, then rows: whatever the number of threads.
#[test]
fn of_a_key_that_comes_often_the_last_row_wins() {
    let fixture = Fixture::new();
    let text = fixture.join();
    let (before, after) = text.split_once("    sources:").expect("sources");
    let (_, after) = after.split_once("  columns:").expect("columns");
    let text = format!("{before}  columns:{after}")
        .replace("[source, file_size", "[file_size")
        .replace("    - {name: source, type: string}\n", "");
    std::fs::remove_dir_all(fixture.path("index")).expect("remove");
    let all: Vec<String> = (0..SHARDS)
        .flat_map(|shard| (0..ROWS).filter_map(move |row| key(shard, row)))
        .collect();
    // Each file has every key twice, in turned order, spread over many row groups.
    for file in 0..5_i64 {
        let turned = all.iter().rev().enumerate();
        let mut rows: Vec<(String, i64)> = turned
            .map(|(at, key)| (key.clone(), file * 10_000 + at as i64))
            .collect();
        rows.extend(
            all.iter()
                .enumerate()
                .map(|(at, key)| (key.clone(), file * 10_000 + 5000 + at as i64)),
        );
        write_index_file(&fixture.path(&format!("index/part-{file}.parquet")), &rows)
            .expect("write");
    }
    let mut outputs = Vec::new();
    for threads in ["1", "2", "4", "8"] {
        let name = format!("out_{threads}");
        let worker = fixture.worker("run", &text).arguments(&format!(
            "--threads {threads} --output-prefix {}/{name}",
            fixture.root()
        ));
        worker.run().expect(0);
        outputs.push(fixture.shards(&name));
    }
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    let mut position = 0;
    for shard in 0..SHARDS {
        let rows = fixture.rows(&format!("out_1/{}", path(shard)));
        for (row, found) in rows.integers("file_size").into_iter().enumerate() {
            let expected = key(shard, row).map(|_| {
                position += 1;
                45_000 + position - 1
            });
            assert_eq!(found, expected, "shard {shard}, row {row}");
        }
    }
}

/// A sibling's column is copied where every row has its struct, and written anew where some are
/// null; both are counted.
#[test]
fn merged_structs_are_present_and_counted() {
    let fixture = Fixture::new();
    let (mut populated, mut errors) = (0, 0);
    for shard in (0..SHARDS).filter(|&shard| has_scores(shard)) {
        let scores: Vec<Option<f64>> = (0..ROWS).map(|row| raw_score(shard, row)).collect();
        let failed = |row: usize| scores[row].is_none() && row.is_multiple_of(2);
        populated += (0..ROWS)
            .filter(|&row| scores[row].is_some() || failed(row))
            .count();
        errors += (0..ROWS).filter(|&row| failed(row)).count();
        let error: StringArray = (0..ROWS)
            .map(|row| failed(row).then_some("no image"))
            .collect();
        let fields = [
            (
                "raw_score",
                Arc::new(Float64Array::from(scores.clone())) as ArrayRef,
            ),
            ("score", Arc::new(Float64Array::from(scores.clone()))),
            ("error", Arc::new(error)),
        ];
        let (fields, children, _) = StructArray::from(
            fields
                .into_iter()
                .map(|(name, array)| {
                    let field = Field::new(name, array.data_type().clone(), true);
                    (Arc::new(field), array)
                })
                .collect::<Vec<_>>(),
        )
        .into_parts();
        // In every other shard a row without a value has no struct either.
        let present = (0..ROWS).map(|row| shard % 2 == 0 || scores[row].is_some() || failed(row));
        let nulls = NullBuffer::from_iter(present);
        let column = StructArray::try_new(fields, children, Some(nulls)).expect("a struct");
        let columns: [(&str, ArrayRef); 2] = [
            (
                "image_key",
                texts((0..ROWS).map(|row| Some(image_key(shard, row)))),
            ),
            ("score_aes", Arc::new(column)),
        ];
        write_table(&fixture.path("scores").join(path(shard)), &columns, 8).expect("write");
    }
    // Declared or not: what comes from a sibling is the sidecar's own.
    let declared = fixture.full();
    // Undeclared it can't be in a shard without a sibling, which fails then.
    let undeclared = declared
        .replace("    - {name: score_aes, type: score_v1}\n", "")
        .replace("required: false", "required: true");
    assert_ne!(declared, undeclared);
    for (text, run, verification) in [(declared, 0, 0), (undeclared, 1, 3)] {
        let _ = std::fs::remove_dir_all(fixture.path("out"));
        let (_, report) = fixture.report(fixture.worker("run", &text), run);
        let counts = &report["columns"]["score_aes"];
        let rows = if text.contains("score_v1") {
            SHARDS * ROWS
        } else {
            (0..SHARDS).filter(|&shard| has_scores(shard)).count() * ROWS
        };
        assert_eq!(
            counts,
            &serde_json::json!({"populated": populated, "null": rows - populated, "error": errors})
        );
        for shard in (0..SHARDS).filter(|&shard| has_scores(shard)) {
            let rows = fixture.rows(&format!("out/{}", path(shard)));
            // Also says that every struct is present.
            let found = rows.floats_in("score_aes", "raw_score");
            let expected: Vec<_> = (0..ROWS).map(|row| raw_score(shard, row)).collect();
            assert_eq!(found, expected, "shard {shard}");
        }
        fixture
            .worker("verify", &text)
            .arguments("--all --deep")
            .run()
            .expect(verification);
    }
}
