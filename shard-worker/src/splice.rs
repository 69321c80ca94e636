//! Whether column chunks can be copied as they are.

use parquet::column::page::PageReader;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::ColumnChunkMetaData;

use crate::keys::is_unsigned;
use crate::leaf::header_reader;
use crate::parquet_file::{ParquetFile, chunk_start, is_portable};

/// Whether a top-level column of `file` can be copied into row groups of `group_rows` rows.
/// `Err` says why it has to be decoded. Says nothing of the records in lists, which levels alone
/// tell: see [`crate::levels::check_lists`].
pub fn check(file: &ParquetFile, root: usize, group_rows: &[usize]) -> Result<(), String> {
    if file.group_rows() != group_rows {
        return Err("its row groups differ from main's".to_owned());
    }
    for (group, rows) in file.groups() {
        let row_group = file.metadata.row_group(group);
        for leaf in file.leaves_of(root) {
            let chunk = row_group.column(leaf);
            if !is_portable(chunk.compression()) {
                return Err(format!("codec {} is not portable", chunk.compression()));
            }
            if chunk.column_descr().max_rep_level() == 0 && chunk.num_values() != rows as i64 {
                return Err(format!(
                    "row group {group}: {} values for {rows} rows",
                    chunk.num_values()
                ));
            }
            walk_pages(file, group, leaf)?;
        }
    }
    Ok(())
}

/// Walks the page headers: sizes must lead from page to page to the end of the chunk, and the
/// values must add up. Cheap: nothing is decompressed.
pub fn walk_pages(file: &ParquetFile, group: usize, leaf: usize) -> Result<(), String> {
    let row_group = file.metadata.row_group(group);
    let mut pages =
        header_reader(file.bytes.clone(), row_group, leaf).map_err(|error| error.to_string())?;
    let mut values = 0_i64;
    while let Some(page) = pages.peek_next_page().map_err(|error| error.to_string())? {
        if !page.is_dict {
            values += page.num_levels.or(page.num_rows).unwrap_or(0) as i64;
        }
        pages.skip_next_page().map_err(|error| error.to_string())?;
    }
    let expected = row_group.column(leaf).num_values();
    if values != expected {
        return Err(format!(
            "row group {group}: pages hold {values} values, the footer says {expected}"
        ));
    }
    Ok(())
}

/// The description of a chunk for `append_column`, page indexes and bloom filter left behind.
pub fn close_result(
    file: &ParquetFile,
    group: usize,
    leaf: usize,
) -> parquet::errors::Result<ColumnCloseResult> {
    let row_group = file.metadata.row_group(group);
    let chunk: &ColumnChunkMetaData = row_group.column(leaf);
    let start = chunk_start(chunk);
    let mut builder = chunk.clone().into_builder();
    if chunk
        .dictionary_page_offset()
        .is_some_and(|offset| offset != start)
    {
        builder = builder.set_dictionary_page_offset(None);
    }
    Ok(ColumnCloseResult {
        bytes_written: chunk.compressed_size().max(0) as u64,
        rows_written: row_group.num_rows().max(0) as u64,
        metadata: builder.build()?,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    })
}

/// Whether two columns are stored as the very same bytes, so that equal chunks mean equal
/// values and one of them need not be decoded.
pub fn same_bytes(left: (&ParquetFile, usize), right: (&ParquetFile, usize)) -> bool {
    let ((left, left_leaf), (right, right_leaf)) = (left, right);
    if left.group_rows() != right.group_rows() {
        return false;
    }
    left.groups().zip(right.groups()).all(|((left_group, _), (right_group, _))| {
        let left_chunk = left.metadata.row_group(left_group).column(left_leaf);
        let right_chunk = right.metadata.row_group(right_group).column(right_leaf);
        let descriptors = (left_chunk.column_descr(), right_chunk.column_descr());
        let alike = left_chunk.compression() == right_chunk.compression()
            && left_chunk.num_values() == right_chunk.num_values()
            && left_chunk.compressed_size() == right_chunk.compressed_size()
            && descriptors.0.max_def_level() == descriptors.1.max_def_level()
            && descriptors.0.physical_type() == descriptors.1.physical_type()
            && descriptors.0.type_length() == descriptors.1.type_length()
            // The bytes of INT32 -1 are those of UINT32 4294967295.
            && is_unsigned(descriptors.0) == is_unsigned(descriptors.1);
        let bytes = |file: &ParquetFile, chunk: &ColumnChunkMetaData| {
            let length = usize::try_from(chunk.compressed_size()).ok()?;
            file.bytes.slice(u64::try_from(chunk_start(chunk)).ok()?, length)
        };
        alike && matches!((bytes(left, left_chunk), bytes(right, right_chunk)), (Some(left), Some(right)) if left == right)
    })
}
