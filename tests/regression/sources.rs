//! Shards, side inputs and keys: nothing is dropped or mixed.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, NullArray, UInt32Array};
use harness::dataset::{texts, write_table};
use parquet::data_type::{ByteArrayType, FixedLenByteArray, FixedLenByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::fixture::Fixture;
use crate::worker::Ended;

/// Shards of main, each with so many rows.
const SHARDS: usize = 4;
const ROWS: usize = 10;

fn key(row: usize) -> String {
    format!("s3://photos/raw/{row:04}.jpg")
}

fn keys(rows: std::ops::Range<usize>) -> ArrayRef {
    texts(rows.map(|row| Some(key(row))))
}

fn words(word: &str, rows: std::ops::Range<usize>) -> ArrayRef {
    texts(rows.map(|row| Some(format!("{word} {row}"))))
}

fn table(path: &Path, columns: &[(&str, ArrayRef)]) {
    write_table(path, columns, 1000).expect("a table");
}

/// Main: four shards with keys, and nothing else.
fn main_of(fixture: &Fixture) {
    for shard in 0..SHARDS {
        let rows = shard * ROWS..(shard + 1) * ROWS;
        table(
            &fixture.path(&format!("main/{shard}.parquet")),
            &[("s3_path", keys(rows))],
        );
    }
}

/// A job with one step and one column.
fn job(fixture: &Fixture, column: &str, step: &str, more: &str) -> String {
    let root = fixture.root();
    format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: sources}}
spec:
  dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path{more}}}
  columns: [{column}]
  pipeline: [{step}]
  output: {{prefix: {root}/out/}}
"
    )
}

fn join(fixture: &Fixture, source: &str) -> String {
    let step = format!(
        "{{joinFromParquet: {{source: {}/{source}, columns: [v]}}}}",
        fixture.root()
    );
    job(fixture, "{name: v, type: string}", &step, "")
}

fn captions(fixture: &Fixture, source: &str) -> String {
    let step = format!(
        "{{recaptionMerge: {{source: {}/{source}, columns: [v], mode: Always}}}}",
        fixture.root()
    );
    job(fixture, "{name: v, type: string}", &step, "")
}

fn merge(fixture: &Fixture) -> String {
    let root = fixture.root();
    let step = format!("{{mergeFromSidecar: {{sourcePrefix: {root}/sibling/, columns: [v]}}}}");
    job(fixture, "{name: v, type: string}", &step, "")
}

/// The column `v` of all shards of the output.
fn values(fixture: &Fixture) -> Vec<Option<String>> {
    let shards = (0..SHARDS).map(|shard| fixture.rows(&format!("out/{shard}.parquet")));
    shards.flat_map(|rows| rows.texts("v")).collect()
}

fn all(word: &str) -> Vec<Option<String>> {
    (0..SHARDS * ROWS)
        .map(|row| Some(format!("{word} {row}")))
        .collect()
}

fn is_whole(fixture: &Fixture) -> bool {
    fixture.path("out/_SUCCESS").exists()
}

fn both(ended: &Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

/// Hub caches, git-annex and DVC keep links: one that leads nowhere is no shard less.
#[test]
fn a_main_shard_that_is_a_dangling_link_fails_by_name() {
    let fixture = Fixture::empty();
    main_of(&fixture);
    table(
        &fixture.path("i.parquet"),
        &[("s3_path", keys(0..40)), ("v", words("old", 0..40))],
    );
    std::fs::remove_file(fixture.path("main/2.parquet")).expect("remove");
    symlink("../blobs/gone", fixture.path("main/2.parquet")).expect("a link");
    let ended = fixture.run(&join(&fixture, "i.parquet")).expect(1);
    assert!(
        ended.stdout.contains("2.parquet") && ended.stdout.contains("a link to"),
        "{}",
        ended.stdout
    );
    assert!(!is_whole(&fixture));
    assert_eq!(fixture.shards("out").len(), 3);
    fixture
        .worker("verify", &join(&fixture, "i.parquet"))
        .arguments("--all")
        .run()
        .expect(3);

    // Nobody knows whether this was a folder of shards.
    symlink("../elsewhere/gone", fixture.path("main/0_512")).expect("a link");
    fixture
        .run(&join(&fixture, "i.parquet"))
        .expect(2)
        .says(&["0_512", "leads nowhere"]);
}

#[test]
fn a_sibling_that_is_a_dangling_link_is_not_absent() {
    let fixture = Fixture::empty();
    main_of(&fixture);
    for shard in 0..SHARDS {
        let rows = shard * ROWS..(shard + 1) * ROWS;
        let path = fixture.path(&format!("sibling/{shard}.parquet"));
        table(
            &path,
            &[("s3_path", keys(rows.clone())), ("v", words("old", rows))],
        );
    }
    std::fs::remove_file(fixture.path("sibling/1.parquet")).expect("remove");
    symlink("gone", fixture.path("sibling/1.parquet")).expect("a link");
    let text = merge(&fixture).replace("columns: [v]}}]", "columns: [v], required: false}}]");
    let ended = fixture.run(&text).expect(1);
    assert!(
        ended
            .stdout
            .contains("sibling/1.parquet: it is a link to gone"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_side_input_that_is_a_dangling_link_is_refused_by_name() {
    for (folder, name) in [("index", "raw.parquet"), ("texts", "a.jsonl")] {
        let fixture = Fixture::empty();
        main_of(&fixture);
        std::fs::create_dir(fixture.path(folder)).expect("a folder");
        symlink("gone", fixture.path(folder).join(name)).expect("a link");
        let text = if folder == "index" {
            join(&fixture, "index/")
        } else {
            captions(&fixture, "texts/")
        };
        fixture.run(&text).expect(2).says(&[name, "a link to gone"]);
        // So is one that is named itself.
        let source = format!("{folder}/{name}");
        let text = if folder == "index" {
            join(&fixture, &source)
        } else {
            captions(&fixture, &source)
        };
        fixture.run(&text).expect(2).says(&[name, "link"]);
        assert!(fixture.shards("out").is_empty());
    }
}

#[test]
fn a_source_without_a_file_is_said() {
    let fixture = Fixture::empty();
    main_of(&fixture);
    table(
        &fixture.path("index/raw.parquet"),
        &[("s3_path", keys(0..40)), ("v", words("old", 0..40))],
    );
    let step = format!(
        "{{joinFromParquet: {{source: {}/index/, columns: [v]}}}}",
        fixture.root()
    );
    let markers =
        ", sources: {markers: [{contains: /raw/, source: raw}, {contains: /web/, source: web}]}";
    let text = job(&fixture, "{name: v, type: string}", &step, markers);
    let ended = fixture.run(&text).expect(0);
    for said in [&ended.stdout, &ended.stderr] {
        assert!(
            said.contains("web.parquet") && !said.contains("no file raw"),
            "{said}"
        );
    }
}

#[test]
fn a_linked_folder_of_an_index_is_looked_into() {
    let fixture = Fixture::empty();
    main_of(&fixture);
    table(
        &fixture.path("store/a.parquet"),
        &[("s3_path", keys(0..40)), ("v", words("old", 0..40))],
    );
    std::fs::create_dir(fixture.path("index")).expect("a folder");
    symlink("../store", fixture.path("index/linked")).expect("a link");
    symlink(".", fixture.path("index/circle")).expect("a link");
    fixture.run(&join(&fixture, "index/")).expect(0);
    assert_eq!(values(&fixture), all("old"));
}

/// mmore#244, #268, floe#328: what is beside main is replaced between two runs.
#[test]
fn a_side_input_that_was_replaced_makes_its_shards_anew() {
    type Write = fn(&Fixture, &str);
    let index: Write = |fixture, word| {
        table(
            &fixture.path("i.parquet"),
            &[("s3_path", keys(0..40)), ("v", words(word, 0..40))],
        );
    };
    let lines: Write = |fixture, word| {
        let line = |row| format!("{{\"s3_path\": {:?}, \"v\": \"{word} {row}\"}}\n", key(row));
        std::fs::write(
            fixture.path("c.jsonl"),
            (0..40).map(line).collect::<String>(),
        )
        .expect("write");
    };
    let siblings: Write = |fixture, word| {
        for shard in 0..SHARDS {
            let rows = shard * ROWS..(shard + 1) * ROWS;
            let path = fixture.path(&format!("sibling/{shard}.parquet"));
            table(
                &path,
                &[("s3_path", keys(rows.clone())), ("v", words(word, rows))],
            );
        }
    };
    type Text = fn(&Fixture) -> String;
    let kinds: [(Write, Text); 3] = [
        (index, |fixture| join(fixture, "i.parquet")),
        (lines, |fixture| captions(fixture, "c.jsonl")),
        (siblings, merge),
    ];
    for (write, text) in kinds {
        let fixture = Fixture::empty();
        main_of(&fixture);
        let text = text(&fixture);
        let run = |more: &str| fixture.worker("run", &text).arguments(more).run().expect(0);
        let verify = |code| {
            let worker = fixture.worker("verify", &text).arguments("--all");
            both(&worker.run().expect(code))
        };
        write(&fixture, "old");
        run("");
        let before = fixture.shards("out");
        run("");
        assert_eq!(fixture.shards("out"), before, "nothing has changed");
        // As long as the words before, so that sizes tell nothing.
        write(&fixture, "new");
        let said = verify(3);
        assert!(said.contains("side_input"), "{said}");
        let ended = run("");
        assert!(
            ended.stderr.contains("side inputs have changed"),
            "{}",
            ended.stderr
        );
        assert_eq!(values(&fixture), all("new"), "{text}");
        assert!(is_whole(&fixture));
        verify(0);
        // Half of it is made, and the lines are lost, so that footers decide.
        std::fs::remove_dir_all(fixture.path("out")).expect("remove");
        run("--max-shards 2");
        std::fs::remove_dir_all(fixture.path("out/_sidecar")).expect("remove");
        write(&fixture, "old");
        run("");
        assert_eq!(values(&fixture), all("old"), "{text}");
    }
}

/// A key that is an integer matches, whichever file it is in.
#[test]
fn integer_keys_of_lines_match_integers() {
    let fixture = Fixture::empty();
    for shard in 0..SHARDS {
        let rows = (shard * ROWS) as i64..((shard + 1) * ROWS) as i64;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.map(|row| row - 5)));
        table(
            &fixture.path(&format!("main/{shard}.parquet")),
            &[("s3_path", numbers)],
        );
    }
    let line = |row: usize| {
        format!(
            "{{\"s3_path\": {}, \"v\": \"old {row}\"}}\n",
            row as i64 - 5
        )
    };
    std::fs::write(
        fixture.path("c.jsonl"),
        (0..40).map(line).collect::<String>(),
    )
    .expect("write");
    fixture.run(&captions(&fixture, "c.jsonl")).expect(0);
    assert_eq!(values(&fixture), all("old"));

    // Texts never equal integers, and that is no match rate of 0 %.
    let line = |row: usize| format!("{{\"s3_path\": \"{}\", \"v\": \"x\"}}\n", row as i64 - 5);
    std::fs::write(
        fixture.path("c.jsonl"),
        (0..40).map(line).collect::<String>(),
    )
    .expect("write");
    let ended = fixture
        .worker("run", &captions(&fixture, "c.jsonl"))
        .arguments("--no-skip-existing")
        .run()
        .expect(2);
    assert!(
        ended.stderr.contains("can never be equal"),
        "{}",
        ended.stderr
    );
}

/// polars#10041, #16245, jsonlines#68: what Python and Windows write.
#[test]
fn lines_as_python_and_windows_write_them() {
    let line = |row: usize| {
        format!(
            "{{\"score\": NaN, \"s3_path\": {:?}, \"v\": \"old {row}\", \"least\": -Infinity}}",
            key(row)
        )
    };
    let lines: Vec<String> = (0..40).map(line).collect();
    for (name, text) in [
        ("nan", lines.join("\n")),
        ("bom", format!("\u{feff}{}", lines.join("\n"))),
        ("crlf", lines.join("\r\n") + "\r\n"),
        (
            "surrogate",
            lines
                .join("\n")
                .replace("\"score\": NaN", "\"alt\": \"cut \\ud83d\""),
        ),
    ] {
        let fixture = Fixture::empty();
        main_of(&fixture);
        std::fs::write(fixture.path("c.jsonl"), text).expect("write");
        // The manifest, too, begins as an editor on Windows begins it.
        let manifest = format!("\u{feff}{}", captions(&fixture, "c.jsonl"));
        fixture.run(&manifest).expect(0);
        assert_eq!(values(&fixture), all("old"), "{name}");
    }
}

/// pandas#30716, ragflow#19179: a file of which no line is of use is a wrong side input.
#[test]
fn useless_files_of_lines_are_refused() {
    let line = |row: usize| format!("{{\"s3_path\": {:?}, \"v\": \"old {row}\"}}", key(row));
    let lines: Vec<String> = (0..40).map(line).collect();
    let good = lines.join("\n");
    let utf16: Vec<u8> = std::iter::once(0xfeff)
        .chain(good.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    for (name, bytes, word) in [
        (
            "array",
            format!("[{}]", lines.join(",\n")).into_bytes(),
            "JSON array",
        ),
        ("utf-16", utf16, "UTF-16"),
        ("gzip", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0], "gzip"),
        ("cr", lines.join("\r").into_bytes(), "CR alone"),
        (
            "key",
            good.replace("s3_path", "image_key").into_bytes(),
            "image_key",
        ),
        (
            "column",
            good.replace("\"v\"", "\"text\"").into_bytes(),
            "text",
        ),
        ("words", b"once upon\na time".to_vec(), "no JSON object"),
    ] {
        let fixture = Fixture::empty();
        main_of(&fixture);
        std::fs::write(fixture.path("c.jsonl"), bytes).expect("write");
        let ended = fixture.run(&captions(&fixture, "c.jsonl")).expect(2);
        assert!(
            ended.stderr.contains(word) && ended.stderr.contains("c.jsonl"),
            "{name}: {}",
            ended.stderr
        );
        assert!(fixture.shards("out").is_empty(), "{name}");
    }
}

/// starrocks#22355, datafusion#1359: one value beyond its type.
#[test]
fn a_value_that_does_not_fit_costs_its_row() {
    let bad = 25;
    let numbers = || {
        let value = |row| {
            if row == bad {
                5_000_000_000
            } else {
                row as i64
            }
        };
        Arc::new(Int64Array::from_iter_values((0..40).map(value))) as ArrayRef
    };
    let check = |fixture: &Fixture, text: &str, place: &str| {
        let (ended, report) = fixture.report(fixture.worker("run", text), 0);
        assert!(
            ended.stderr.contains("column \"v\"") && ended.stderr.contains("5000000000"),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains(place), "{}", ended.stderr);
        let errors = &report["row_errors"]["does_not_fit"];
        assert_eq!(errors["rows"], 1, "{report}");
        assert_eq!(errors["first"][0]["path"], "2.parquet", "{report}");
        assert_eq!(errors["first"][0]["row"], 5, "{report}");
        let found: Vec<Option<i64>> = (0..SHARDS)
            .flat_map(|shard| {
                fixture
                    .rows(&format!("out/{shard}.parquet"))
                    .narrow_integers("v")
            })
            .collect();
        let expected: Vec<Option<i64>> = (0..40)
            .map(|row| (row != bad).then_some(row as i64))
            .collect();
        assert_eq!(found, expected);
    };
    // In an index.
    let fixture = Fixture::empty();
    main_of(&fixture);
    table(
        &fixture.path("i.parquet"),
        &[("s3_path", keys(0..40)), ("v", numbers())],
    );
    let text = join(&fixture, "i.parquet").replace("type: string", "type: int32");
    check(&fixture, &text, "row 25");
    // In main.
    let fixture = Fixture::empty();
    for shard in 0..SHARDS {
        let rows = shard * ROWS..(shard + 1) * ROWS;
        let columns = [
            ("s3_path", keys(rows.clone())),
            ("v", numbers().slice(rows.start, ROWS)),
        ];
        table(&fixture.path(&format!("main/{shard}.parquet")), &columns);
    }
    let text = job(
        &fixture,
        "{name: v, type: int32}",
        "{extractScaffold: {}}",
        "",
    );
    check(&fixture, &text, "row 5");
}

/// INT32 -1 and UINT32 4294967295 are the same bytes, and no equal keys.
#[test]
fn integers_of_other_signs_are_not_aligned() {
    let fixture = Fixture::empty();
    let signed: ArrayRef = Arc::new(Int32Array::from(vec![-1, 2, 3]));
    let unsigned: ArrayRef = Arc::new(UInt32Array::from(vec![u32::MAX, 2, 3]));
    table(&fixture.path("main/0.parquet"), &[("s3_path", signed)]);
    table(
        &fixture.path("sibling/0.parquet"),
        &[("s3_path", unsigned), ("v", words("x", 0..3))],
    );
    let ended = fixture.run(&merge(&fixture)).expect(1);
    assert!(
        ended.stdout.contains("4294967295") && ended.stdout.contains("-1"),
        "{}",
        ended.stdout
    );
}

/// The sixteen bytes of a UUID are never equal to its text.
#[test]
fn keys_that_can_never_match_are_refused() {
    let fixture = Fixture::empty();
    main_of(&fixture);
    let schema = "message m { required fixed_len_byte_array(16) s3_path (UUID); required binary v (STRING); }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let file = std::fs::File::create(fixture.path("i.parquet")).expect("a file");
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let id = FixedLenByteArray::from(vec![7; 16]);
    let mut column = group.next_column().expect("a column").expect("the key");
    let written = column
        .typed::<FixedLenByteArrayType>()
        .write_batch(&[id], None, None);
    written.and_then(|_| column.close()).expect("written");
    let mut column = group.next_column().expect("a column").expect("the value");
    let written = column
        .typed::<ByteArrayType>()
        .write_batch(&["x".into()], None, None);
    written.and_then(|_| column.close()).expect("written");
    group.close().expect("closed");
    writer.close().expect("closed");
    let ended = fixture.run(&join(&fixture, "i.parquet")).expect(1);
    assert!(
        ended.stdout.contains("UUID") && ended.stdout.contains("can never be equal"),
        "{}",
        ended.stdout
    );
}

/// Writers that see no row guess a type.
#[test]
fn an_empty_shard_with_a_key_column_of_nulls_passes() {
    let fixture = Fixture::empty();
    main_of(&fixture);
    let nothing: ArrayRef = Arc::new(NullArray::new(0));
    table(
        &fixture.path("main/4.parquet"),
        &[("s3_path", nothing.clone())],
    );
    let index = [("s3_path", keys(0..40)), ("v", words("old", 0..40))];
    table(&fixture.path("index/a.parquet"), &index);
    let columns = [("s3_path", nothing), ("v", words("old", 0..0))];
    table(&fixture.path("index/b.parquet"), &columns);
    fixture.run(&join(&fixture, "index/")).expect(0);
    assert_eq!(values(&fixture), all("old"));
    assert!(is_whole(&fixture));
}
