//! A small dataset with what real ones have, and jobs that enrich it.
//!
//! Every value follows from the number of its shard and row, so a test can say what has to
//! come out. Below the root: `main/`, `index/` (a file for each of two sources), `scores/`
//! (row-aligned siblings) and `captions/` (JSON Lines).

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

/// Sources in turn: that of shard `s` is `SOURCES[s % 3]`.
pub const SOURCES: [&str; 3] = ["source_a", "source_b", "source_c"];

/// The index has files for this many of the sources; the rest match nothing.
pub const INDEXED_SOURCES: usize = 2;

/// How large a dataset is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Main shards.
    pub shards: usize,
    /// Rows of each.
    pub rows: usize,
    /// Rows of a row group.
    pub group_rows: usize,
    /// Bytes of an image.
    pub image_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            shards: 12,
            rows: 20,
            group_rows: 8,
            image_bytes: 64,
        }
    }
}

/// Scrambles numbers; the same always.
pub fn mix(shard: usize, row: usize, salt: u64) -> u64 {
    let mut mixed = ((shard as u64) << 32 | row as u64) ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Relative path of a shard.
pub fn path(shard: usize) -> String {
    format!("{}/{shard:04}.parquet", SOURCES[shard % SOURCES.len()])
}

/// The `s3_path` of a row; one in thirty has none.
pub fn key(shard: usize, row: usize) -> Option<String> {
    let source = SOURCES[shard % SOURCES.len()];
    (!mix(shard, row, 1).is_multiple_of(30))
        .then(|| format!("s3://photos/{source}/{shard:04}/{row:04}.jpg"))
}

/// The `image_key` of a row: every row has one.
pub fn image_key(shard: usize, row: usize) -> String {
    format!("{shard:04}-{row:04}")
}

/// What the index says of a row's `file_size`; none for rows that it does not have.
pub fn file_size(shard: usize, row: usize) -> Option<i64> {
    let is_indexed =
        shard % SOURCES.len() < INDEXED_SOURCES && !mix(shard, row, 2).is_multiple_of(5);
    (is_indexed && key(shard, row).is_some()).then_some((shard * 1000 + row) as i64)
}

/// Main's caption of a row: a text, nothing, or white space.
pub fn caption(shard: usize, row: usize) -> Option<String> {
    match mix(shard, row, 3) % 4 {
        0 => None,
        1 => Some("  ".to_string()),
        _ => Some(format!("main {shard} {row}")),
    }
}

/// The new caption of a row: a text, white space, or none.
pub fn recaption(shard: usize, row: usize) -> Option<String> {
    key(shard, row)?;
    match mix(shard, row, 4) % 5 {
        0 => None,
        1 => Some(" \t".to_string()),
        _ => Some(format!("new {shard} {row}")),
    }
}

/// Whether a shard has a sibling below `scores/`.
pub fn has_scores(shard: usize) -> bool {
    shard % 10 != 9
}

/// The raw score of a row; one in six has an error instead.
pub fn raw_score(shard: usize, row: usize) -> Option<f64> {
    (!mix(shard, row, 5).is_multiple_of(6)).then(|| mix(shard, row, 6) as f64 / 1e18)
}

impl Shape {
    /// Writes all of it below `root`.
    ///
    /// # Panics
    /// If a file can't be written.
    pub fn write(self, root: &Path) {
        let written = (0..self.shards)
            .try_for_each(|shard| {
                self.write_main(root, shard)?;
                self.write_scores(root, shard)
            })
            .and_then(|()| self.write_index(root))
            .and_then(|()| self.write_captions(root));
        if let Err(error) = written {
            panic!("the dataset can't be written: {error:#}");
        }
    }

    fn write_main(self, root: &Path, shard: usize) -> Result<()> {
        let rows = || 0..self.rows;
        // As hard to compress as a real one.
        let images = rows().map(|row| {
            let words = (7..).flat_map(|salt| mix(shard, row, salt).to_le_bytes());
            words.take(self.image_bytes).collect::<Vec<u8>>()
        });
        let columns: [(&str, ArrayRef); 5] = [
            (
                "s3_path",
                Arc::new(rows().map(|row| key(shard, row)).collect::<StringArray>()),
            ),
            (
                "image_key",
                texts(rows().map(|row| Some(image_key(shard, row)))),
            ),
            (
                "image",
                Arc::new(BinaryArray::from_iter_values(images)) as ArrayRef,
            ),
            (
                "width",
                Arc::new(Int32Array::from_iter_values(
                    rows().map(|row| 100 + row as i32),
                )),
            ),
            ("caption", texts(rows().map(|row| caption(shard, row)))),
        ];
        write_table(
            &root.join("main").join(path(shard)),
            &columns,
            self.group_rows,
        )
    }

    fn write_scores(self, root: &Path, shard: usize) -> Result<()> {
        if !has_scores(shard) {
            return Ok(());
        }
        let raw: Float64Array = (0..self.rows).map(|row| raw_score(shard, row)).collect();
        let score: Float64Array = raw.iter().map(|raw| raw.map(|raw| raw / 20.0)).collect();
        let error = raw.iter().map(|raw| raw.is_none().then_some("no image"));
        let fields: [(&str, ArrayRef); 3] = [
            ("raw_score", Arc::new(raw.clone())),
            ("score", Arc::new(score)),
            ("error", Arc::new(error.collect::<StringArray>())),
        ];
        let keys = (0..self.rows).map(|row| Some(image_key(shard, row)));
        let columns = [
            ("image_key", texts(keys)),
            ("score_aes", structure(&fields)),
        ];
        write_table(
            &root.join("scores").join(path(shard)),
            &columns,
            self.group_rows,
        )
    }

    /// A file a source. One key in ten comes twice, and the later row is the right one; some
    /// keys are in no shard.
    fn write_index(self, root: &Path) -> Result<()> {
        for (number, source) in SOURCES.iter().enumerate().take(INDEXED_SOURCES) {
            let mut rows: Vec<(String, i64)> = Vec::new();
            let mut right = Vec::new();
            for shard in (number..self.shards).step_by(SOURCES.len()) {
                for row in 0..self.rows {
                    let (Some(key), Some(size)) = (key(shard, row), file_size(shard, row)) else {
                        continue;
                    };
                    if mix(shard, row, 8).is_multiple_of(10) {
                        right.push((key.clone(), size));
                        rows.push((key, -1));
                    } else {
                        rows.push((key, size));
                    }
                }
            }
            rows.extend(
                (0..200).map(|other| (format!("s3://photos/{source}/gone/{other}.jpg"), other)),
            );
            rows.sort_by_key(|(key, size)| (key.len(), size % 7, key.clone()));
            rows.extend(right);
            write_index_file(&root.join("index").join(format!("{source}.parquet")), &rows)?;
        }
        Ok(())
    }

    /// Two files with a line a text; a broken line and lines without a key among them.
    fn write_captions(self, root: &Path) -> Result<()> {
        let folder = root.join("captions");
        std::fs::create_dir_all(&folder)?;
        for part in 0..2 {
            let mut file = File::create(folder.join(format!("part-{part}.jsonl")))?;
            writeln!(
                file,
                "{{\"caption\": \"nobody's\"}}\n{{\"s3_path\": null, \"caption\": \"null's\"}}"
            )?;
            for shard in (part..self.shards).step_by(2) {
                for row in 0..self.rows {
                    let Some(key) = key(shard, row) else { continue };
                    if let Some(caption) = recaption(shard, row) {
                        let line = serde_json::json!({"s3_path": key, "caption": caption});
                        writeln!(file, "{line}")?;
                    }
                }
            }
            writeln!(file, "{{\"s3_path\": \"cut o")?;
        }
        Ok(())
    }
}

/// Writes an index with the columns `s3_path`, `file_size` and `filter_clarity`, whose score
/// is the size.
///
/// # Errors
/// If the file can't be written.
pub fn write_index_file(path: &Path, rows: &[(String, i64)]) -> Result<()> {
    let sizes = || rows.iter().map(|(_, size)| *size);
    let clarity: [(&str, ArrayRef); 3] = [
        (
            "passed",
            Arc::new(BooleanArray::from_iter(
                sizes().map(|size| Some(size % 2 == 0)),
            )),
        ),
        (
            "laplacian_var",
            Arc::new(Float64Array::from_iter_values(
                sizes().map(|size| size as f64 * 1.5),
            )),
        ),
        (
            "score",
            Arc::new(Float64Array::from_iter_values(
                sizes().map(|size| size as f64),
            )),
        ),
    ];
    let columns = [
        ("s3_path", texts(rows.iter().map(|(key, _)| Some(key)))),
        (
            "file_size",
            Arc::new(Int64Array::from_iter_values(sizes())) as ArrayRef,
        ),
        ("filter_clarity", structure(&clarity)),
    ];
    write_table(path, &columns, 64)
}

/// A text column.
pub fn texts<T: AsRef<str>>(values: impl Iterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

/// A struct column without null structs.
pub fn structure(fields: &[(&str, ArrayRef)]) -> ArrayRef {
    let fields = fields.iter().map(|(name, array)| {
        let field = Field::new(*name, DataType::clone(array.data_type()), true);
        (Arc::new(field), Arc::clone(array))
    });
    Arc::new(StructArray::from(fields.collect::<Vec<_>>()))
}

/// Writes a Parquet file and the folders above it; all columns are nullable.
///
/// # Errors
/// If it can't be written.
pub fn write_table(path: &Path, columns: &[(&str, ArrayRef)], group_rows: usize) -> Result<()> {
    let folder = path.parent().context("a path without a folder")?;
    std::fs::create_dir_all(folder)?;
    let nullable = columns
        .iter()
        .map(|(name, array)| (*name, Arc::clone(array), true));
    let batch = RecordBatch::try_from_iter_with_nullable(nullable)?;
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

const HEAD: &str = "\
apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {name: NAME}
spec:
  dataset:
    mainPrefix: ROOT/main/
    keyColumn: s3_path
    imageColumn: image
    sources:
      markers:
        - {contains: /source_a/, source: source_a}
        - {contains: /source_b/, source: source_b}
";

const JOIN: &str = "    - joinFromParquet:
        source: ROOT/index/
        columns: [source, file_size, filter_clarity]
        mode: OverwriteAll
";

/// A job that only joins the index.
pub fn join_job(root: &str, output: &str) -> String {
    let text = format!(
        "{HEAD}  columns:
    - {{name: source, type: string}}
    - {{name: file_size, type: int64}}
    - {{name: filter_clarity, type: filter_clarity_v1}}
  pipeline:
    - extractScaffold: {{}}
{JOIN}  output: {{prefix: {output}}}
"
    );
    text.replace("NAME", "join").replace("ROOT", root)
}

/// A job with every operation: scaffold, join, merge of siblings and of captions.
pub fn full_job(root: &str, output: &str) -> String {
    let text = format!(
        "{HEAD}  columns:
    - {{name: source, type: string}}
    - {{name: file_size, type: int64}}
    - {{name: filter_clarity, type: filter_clarity_v1}}
    - {{name: score_aes, type: score_v1}}
    - {{name: caption, type: string}}
  pipeline:
    - extractScaffold: {{}}
{JOIN}    - mergeFromSidecar:
        sourcePrefix: ROOT/scores/
        columns: [score_aes]
        mode: PreferSidecar
        targetKeyColumn: image_key
        required: false
    - recaptionMerge:
        source: ROOT/captions/
        columns: [caption]
        mode: Always
  output: {{prefix: {output}}}
"
    );
    text.replace("NAME", "full").replace("ROOT", root)
}
