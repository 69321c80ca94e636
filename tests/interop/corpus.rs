//! The files of the Apache Parquet test suite: each is copied row for row, or refused with a
//! reason, and none of them takes the program down.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::surroundings::{Python, shared_folder};
use crate::worker::{Job, prefix};

/// What becomes of a file as a main shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It is done, with so many rows, and deep verification finds nothing.
    Rows(u64),
    /// It fails, for a reason that has these words.
    Fails(&'static str),
}

use Expected::{Fails, Rows};

const NESTED: Expected = Fails("is nested; expected strings, binary or integers");
/// A decimal is no key, whichever annotation says that it is one.
const DECIMAL: Expected = Fails("DECIMAL");
/// Pages are checked against their checksums, where they have them, by whoever decodes them.
const WRONG_CRC: Expected = Fails("Page CRC checksum mismatch");

/// Path, key column, and what becomes of it. A file may be tried with several keys: the key
/// column is decoded by every run, while the others are only copied where that is possible.
#[rustfmt::skip]
const FILES: &[(&str, &str, Expected)] = &[
    // A column shorter than the others; its footer has a list whose type this library refuses.
    ("bad_data/ARROW-GH-41317.parquet", "uint8", Fails("the footer cannot be parsed")),
    // A delta block of an impossible width.
    ("bad_data/ARROW-GH-41321.parquet", "uint8", Fails("column \"large_binary\"")),
    ("bad_data/ARROW-GH-41321.parquet", "large_binary", Fails("key column \"large_binary\"")),
    ("bad_data/ARROW-GH-43605.parquet", "min_fl", Rows(21186)),
    // Begins with a repetition level that continues a row. Polars alone reads it.
    ("bad_data/ARROW-GH-45185.parquet", "x", NESTED),
    ("bad_data/ARROW-GH-47662.parquet", "flba_field", Fails("key column \"flba_field\"")),
    ("bad_data/ARROW-RS-GH-6229-DICTHEADER.parquet", "nation_key", Fails("column \"region_key\" lies outside the file")),
    // DuckDB and Polars read one row.
    ("bad_data/ARROW-RS-GH-6229-LEVELS.parquet", "outer", NESTED),
    ("bad_data/PARQUET-1481.parquet", "x", Fails("the footer cannot be parsed")),
    ("data/alltypes_dictionary.parquet", "id", Rows(2)),
    ("data/alltypes_plain.parquet", "id", Rows(8)),
    ("data/alltypes_plain.snappy.parquet", "id", Rows(2)),
    ("data/alltypes_tiny_pages.parquet", "id", Rows(7300)),
    ("data/alltypes_tiny_pages_plain.parquet", "id", Rows(7300)),
    ("data/binary.parquet", "foo", Rows(12)),
    ("data/binary_truncated_min_max.parquet", "utf8_full_truncation", Rows(12)),
    ("data/byte_array_decimal.parquet", "value", DECIMAL),
    ("data/byte_stream_split.zstd.parquet", "f32", Fails("is stored as FLOAT")),
    ("data/byte_stream_split_extended.gzip.parquet", "int32_plain", Rows(200)),
    ("data/column_chunk_key_value_metadata.parquet", "column1", Rows(0)),
    ("data/concatenated_gzip_members.parquet", "long_col", Rows(513)),
    ("data/data_index_bloom_encoding_stats.parquet", "String", Rows(14)),
    ("data/data_index_bloom_encoding_with_length.parquet", "String", Rows(14)),
    ("data/datapage_v1-corrupt-checksum.parquet", "a", WRONG_CRC),
    ("data/datapage_v1-corrupt-checksum.parquet", "b", WRONG_CRC),
    ("data/datapage_v1-snappy-compressed-checksum.parquet", "a", Rows(5120)),
    ("data/datapage_v1-uncompressed-checksum.parquet", "a", Rows(5120)),
    ("data/datapage_v2.snappy.parquet", "a", Rows(5)),
    ("data/datapage_v2_empty_datapage.snappy.parquet", "value", Fails("is stored as FLOAT")),
    ("data/delta_binary_packed.parquet", "bitwidth0", Rows(200)),
    ("data/delta_byte_array.parquet", "c_customer_id", Rows(1000)),
    ("data/delta_encoding_optional_column.parquet", "c_customer_sk", Rows(100)),
    ("data/delta_encoding_required_column.parquet", "c_customer_sk:", Rows(100)),
    ("data/delta_length_byte_array.parquet", "FRUIT", Rows(1000)),
    // pyarrow and DuckDB read 39 rows, Polars refuses it.
    ("data/dict-page-offset-zero.parquet", "l_partkey", Fails("the footer cannot be parsed")),
    ("data/fixed_length_byte_array.parquet", "flba_field", Rows(1000)),
    ("data/fixed_length_decimal.parquet", "value", DECIMAL),
    ("data/fixed_length_decimal_legacy.parquet", "value", DECIMAL),
    ("data/float16_nonzeros_and_nans.parquet", "x", Fails("is stored as FIXED_LEN_BYTE_ARRAY")),
    ("data/float16_zeros_and_nans.parquet", "x", Fails("is stored as FIXED_LEN_BYTE_ARRAY")),
    ("data/floating_orders_nan_count.parquet", "float_ieee754", Fails("is stored as FLOAT")),
    ("data/geospatial/crs-arbitrary-value.parquet", "wkt", Rows(1)),
    ("data/geospatial/crs-default.parquet", "wkt", Rows(1)),
    ("data/geospatial/crs-geography.parquet", "wkt", Rows(1)),
    ("data/geospatial/crs-projjson.parquet", "wkt", Rows(1)),
    ("data/geospatial/crs-srid.parquet", "wkt", Rows(1)),
    ("data/geospatial/geography-lines.parquet", "id", Rows(499)),
    ("data/geospatial/geography-points.parquet", "id", Rows(500)),
    ("data/geospatial/geography-polygons.parquet", "id", Rows(500)),
    ("data/geospatial/geospatial-with-nan.parquet", "group", Rows(3)),
    ("data/geospatial/geospatial.parquet", "group", Rows(196)),
    ("data/hadoop_lz4_compressed.parquet", "c0", Rows(4)),
    ("data/hadoop_lz4_compressed_larger.parquet", "a", Rows(10000)),
    // DuckDB alone reads it.
    ("data/incorrect_map_schema.parquet", "my_map", NESTED),
    ("data/int32_decimal.parquet", "value", DECIMAL),
    ("data/int32_with_null_pages.parquet", "int32_field", Rows(1000)),
    ("data/int64_decimal.parquet", "value", DECIMAL),
    // INT96 passes unchanged, but can't be a key.
    ("data/int96_from_spark.parquet", "a", Fails("is stored as INT96")),
    ("data/large_string_map.brotli.parquet", "arr", NESTED),
    ("data/list_columns.parquet", "int64_list", NESTED),
    ("data/lz4_raw_compressed.parquet", "c0", Rows(4)),
    ("data/lz4_raw_compressed_larger.parquet", "a", Rows(10000)),
    ("data/map_no_value.parquet", "my_map", NESTED),
    ("data/nan_in_stats.parquet", "x", Fails("is stored as DOUBLE")),
    // pyarrow and DuckDB read 25 rows, Polars refuses it.
    ("data/nation.dict-malformed.parquet", "nation_key", Fails("column \"name\"")),
    ("data/nation.dict-malformed.parquet", "name", Fails("key column \"name\"")),
    ("data/nested_lists.snappy.parquet", "b", Rows(3)),
    ("data/nested_maps.snappy.parquet", "b", Rows(6)),
    ("data/nested_structs.rust.parquet", "roll_num", NESTED),
    ("data/non_hadoop_lz4_compressed.parquet", "c0", Rows(4)),
    ("data/nonnullable.impala.parquet", "ID", Rows(1)),
    ("data/null_list.parquet", "emptylist", NESTED),
    ("data/nullable.impala.parquet", "id", Rows(7)),
    ("data/nulls.snappy.parquet", "b_struct", NESTED),
    ("data/old_list_structure.parquet", "a", NESTED),
    ("data/overflow_i16_page_cnt.parquet", "inc", Fails("is stored as BOOLEAN")),
    ("data/page_v2_empty_compressed.parquet", "integer_column", Rows(10)),
    ("data/plain-dict-uncompressed-checksum.parquet", "long_field", Rows(1000)),
    // Read as 6 rows by two engines and as none by the third: never a guess.
    ("data/repeated_no_annotation.parquet", "id", Fails("the footer says 0 rows, its row groups hold 6")),
    ("data/repeated_primitive_no_list.parquet", "Int32_list", Fails("is a list; expected strings, binary or integers")),
    ("data/rle-dict-snappy-checksum.parquet", "long_field", Rows(1000)),
    ("data/rle-dict-uncompressed-corrupt-checksum.parquet", "long_field", WRONG_CRC),
    ("data/rle-dict-uncompressed-corrupt-checksum.parquet", "binary_field", WRONG_CRC),
    ("data/rle_boolean_encoding.parquet", "datatype_boolean", Fails("is stored as BOOLEAN")),
    ("data/single_nan.parquet", "mycol", Fails("is stored as DOUBLE")),
    ("data/sort_columns.parquet", "a", Rows(6)),
    // pyarrow and DuckDB read 3 rows, Polars refuses it.
    ("data/unknown-logical-type.parquet", "column with known type", Fails("column \"column with unknown type\" has a logical type that this release does not know")),
];

/// Relative paths of all Parquet files of the suite.
fn corpus(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.join("data"), root.join("bad_data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".parquet") {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    // Not the mode: the corpus may be read-only.
    std::fs::write(to, std::fs::read(from).unwrap()).unwrap();
}

/// Brings a text that no row has, so that the key column is decoded.
fn spec(main: &Path, output: &Path, key: &str, texts: &Path) -> Value {
    json!({
        "dataset": {"mainPrefix": prefix(main), "keyColumn": key},
        "columns": [{"name": "added", "type": "string"}],
        "pipeline": [
            {"extractScaffold": {}},
            {"recaptionMerge": {"source": texts, "columns": ["added"], "sourceKeyColumn": "key"}},
        ],
        "output": {"prefix": prefix(output)},
    })
}

fn find() -> Option<(PathBuf, tempfile::TempDir, PathBuf)> {
    let corpus = shared_folder("SIDECARJOB_CORPORA", "corpora")?.join("parquet-testing");
    let folder = tempfile::tempdir().unwrap();
    let texts = folder.path().join("texts.jsonl");
    // Keys of either kind, so that they can match whatever main's are.
    let lines = "{\"key\": \"of no row\", \"added\": \"text\"}\n{\"key\": -987654321012, \"added\": \"text\"}\n";
    std::fs::write(&texts, lines).unwrap();
    Some((corpus, folder, texts))
}

/// Code of a verification, which has to end by itself.
fn verify(job: &Job, about: &str) -> i32 {
    let outcome = job.verify();
    assert!(
        !outcome.report.is_null(),
        "{about}: {:?} {}",
        outcome.code,
        outcome.stderr
    );
    outcome.code.unwrap()
}

#[test]
fn every_file_has_an_expectation_and_meets_it() {
    let Some((corpus_root, folder, texts)) = find() else {
        return;
    };
    let known: BTreeSet<String> = FILES.iter().map(|(path, ..)| (*path).to_owned()).collect();
    assert_eq!(
        corpus(&corpus_root),
        known,
        "left: files, right: expectations"
    );
    for (number, (path, key, expected)) in FILES.iter().enumerate() {
        let about = format!("{path} by {key:?}");
        let root = folder.path().join(number.to_string());
        copy(&corpus_root.join(path), &root.join("main/shard.parquet"));
        let job = Job::new(
            &root,
            "corpus",
            spec(&root.join("main"), &root.join("out"), key, &texts),
        );
        let outcome = job.run();
        match expected {
            Rows(rows) => {
                assert_eq!(
                    outcome.code,
                    Some(0),
                    "{about}: {}{}",
                    outcome.stdout,
                    outcome.stderr
                );
                assert_eq!(outcome.count("rows"), *rows, "{about}");
                assert_eq!(verify(&job, &about), 0, "{about}");
            }
            Fails(words) => {
                assert_eq!(
                    outcome.code,
                    Some(1),
                    "{about}: {}{}",
                    outcome.stdout,
                    outcome.stderr
                );
                let failures = outcome.failures();
                let reason = &failures["shard.parquet"];
                assert!(reason.contains(words), "{about}: {reason}");
                assert!(!reason.contains("panic"), "{about}: {reason}");
                assert_eq!(verify(&job, &about), 3, "{about}");
            }
        }
        // As somebody's output it is not what it should be, whatever is in it.
        copy(&corpus_root.join(path), &root.join("foreign/shard.parquet"));
        let foreign = Job::new(
            &root,
            "foreign",
            spec(&root.join("main"), &root.join("foreign"), key, &texts),
        );
        assert_eq!(verify(&foreign, &about), 3, "{about}");
    }
    if let Some(python) = Python::find() {
        python.script("corpus.py", &[folder.path().to_str().unwrap()]);
    }
}

/// All of them together: those that have the key column are done, the others are listed.
#[test]
fn bad_files_cost_nothing_but_themselves() {
    let Some((corpus_root, folder, texts)) = find() else {
        return;
    };
    let root = folder.path();
    for (path, ..) in FILES {
        copy(&corpus_root.join(path), &root.join("main").join(path));
    }
    let job = Job::new(
        root,
        "together",
        spec(&root.join("main"), &root.join("out"), "id", &texts),
    );
    let outcome = job.run().expect(1);
    let done = FILES
        .iter()
        .filter(|(_, key, expected)| *key == "id" && matches!(expected, Rows(_)));
    let done: BTreeSet<String> = done.map(|(path, ..)| (*path).to_owned()).collect();
    assert_eq!(outcome.count("shards_done"), done.len() as u64);
    let failed: BTreeSet<String> = outcome.failures().into_keys().collect();
    assert_eq!(failed, &corpus(&corpus_root) - &done);
    let problems: BTreeSet<String> = job.verify().expect(3).problems().into_keys().collect();
    assert_eq!(problems, failed);
}
