//! Whether what is published can be read: its pages, levels and values.

use crate::leaf::page_reader;
use crate::levels;
use crate::parquet_file::{ParquetFile, is_portable};
use crate::splice;

/// What keeps readers from opening a sidecar, as far as its page headers and the beginning of each
/// column chunk tell.
pub fn opening_problems(side: &ParquetFile) -> Vec<String> {
    let mut problems = Vec::new();
    let schema = side.metadata.file_metadata().schema_descr();
    for leaf in 0..schema.num_columns() {
        let chunks = side.groups().map(|(group, _)| {
            let codec = side.metadata.row_group(group).column(leaf).compression();
            if is_portable(codec) {
                splice::walk_pages(side, group, leaf)
            } else {
                Err(format!("row group {group}: codec {codec} is not portable"))
            }
        });
        let begins = || levels::check_beginnings(side, leaf).map_err(|error| error.to_string());
        if let Err(reason) = chunks.collect::<Result<(), _>>().and_then(|()| begins()) {
            problems.push(format!("column {}: {reason}", schema.column(leaf).path()));
        }
    }
    problems
}

/// Reads every page (CRCs are checked where pages have them) and decodes every column.
pub fn page_problems(side: &ParquetFile) -> Vec<String> {
    let mut problems = Vec::new();
    let schema = side.metadata.file_metadata().schema_descr();
    for leaf in 0..schema.num_columns() {
        for (group, _) in side.groups() {
            let row_group = side.metadata.row_group(group);
            let read = page_reader(side.bytes.clone(), row_group, leaf).and_then(|mut pages| {
                while pages.get_next_page()?.is_some() {}
                Ok(())
            });
            if let Err(error) = read {
                let column = schema.column(leaf);
                problems.push(format!(
                    "row group {group}, column {}: {error}",
                    column.path()
                ));
            }
        }
    }
    if problems.is_empty() {
        for leaf in 0..schema.num_columns() {
            if let Err(error) = levels::check(side, leaf) {
                problems.push(format!("column {}: {error}", schema.column(leaf).path()));
            }
        }
    }
    problems
}
