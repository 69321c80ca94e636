//! Reads a main shard and its sidecar side by side, as a training job would: no join,
//! no look-up, row i of one belongs to row i of the other.
//!
//! ```text
//! show-rows MAIN.parquet SIDECAR.parquet KEY_COLUMN [ROWS]
//! ```
//!
//! It checks the alignment of every row, then prints the first rows: the key from main,
//! and each column that only the sidecar has.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arrow::array::{Array, AsArray, RecordBatch, RecordBatchReader};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const WIDEST_CELL: usize = 47;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [main_path, sidecar_path, key, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: show-rows MAIN.parquet SIDECAR.parquet KEY_COLUMN [ROWS]");
    };
    let wanted = rest.first().map_or(Ok(5), |text| text.parse::<usize>())?;

    // Of main only the key is read here. A trainer would read the image as well.
    let main = read(Path::new(main_path), |name| name == key)?;
    let in_main = column_names(Path::new(main_path))?;
    let sidecar = read(Path::new(sidecar_path), |name| {
        name == key || !in_main.iter().any(|n| n == name)
    })?;
    assert_aligned(&main, &sidecar, key)?;
    println!(
        "{} rows, aligned: {main_path} and {sidecar_path}",
        main.num_rows()
    );

    let options = FormatOptions::default().with_null("-");
    let mut lines = vec![vec![key.clone()]];
    for row in 0..wanted.min(main.num_rows()) {
        lines.push(vec![
            ArrayFormatter::try_new(column(&main, key)?, &options)?
                .value(row)
                .to_string(),
        ]);
    }
    for (field, values) in sidecar.schema().fields().iter().zip(sidecar.columns()) {
        if field.name() == key {
            continue;
        }
        let formatter = ArrayFormatter::try_new(values, &options)?;
        lines[0].push(field.name().clone());
        for (row, line) in lines.iter_mut().skip(1).enumerate() {
            line.push(formatter.value(row).to_string());
        }
    }
    print_table(&lines);
    Ok(())
}

/// The rows of a file, of its top-level columns that are wanted.
fn read(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<RecordBatch> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let roots = builder.schema().fields().iter().enumerate();
    let picked: Vec<usize> = roots
        .filter(|(_, field)| is_wanted(field.name()))
        .map(|(at, _)| at)
        .collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), picked);
    let reader = builder.with_projection(mask).build()?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    Ok(concat_batches(&schema, &batches)?)
}

fn column_names(path: &Path) -> Result<Vec<String>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    Ok(builder
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect())
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array> {
    Ok(batch
        .column_by_name(name)
        .with_context(|| format!("no column {name}"))?
        .as_ref())
}

fn assert_aligned(main: &RecordBatch, sidecar: &RecordBatch, key: &str) -> Result<()> {
    ensure!(
        main.num_rows() == sidecar.num_rows(),
        "not aligned: {} rows against {}",
        main.num_rows(),
        sidecar.num_rows()
    );
    let main_keys = cast(column(main, key)?, &DataType::Utf8)?;
    let sidecar_keys = cast(column(sidecar, key)?, &DataType::Utf8)?;
    let pairs = main_keys
        .as_string::<i32>()
        .iter()
        .zip(sidecar_keys.as_string::<i32>().iter());
    for (row, (in_main, in_sidecar)) in pairs.enumerate() {
        ensure!(
            in_main == in_sidecar,
            "not aligned: the key differs at row {row}"
        );
    }
    Ok(())
}

fn print_table(lines: &[Vec<String>]) {
    let cut = |text: &str| -> String {
        if text.chars().count() <= WIDEST_CELL {
            return text.to_owned();
        }
        text.chars().take(WIDEST_CELL - 1).chain(['…']).collect()
    };
    let cells: Vec<Vec<String>> = lines
        .iter()
        .map(|line| line.iter().map(|text| cut(text)).collect())
        .collect();
    let columns = cells.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            cells
                .iter()
                .map(|line| line[at].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for line in &cells {
        let padded: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(text, width)| format!("{text:width$}"))
            .collect();
        println!("  {}", padded.join("  ").trim_end());
    }
}
