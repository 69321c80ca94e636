//! Which columns of a file with a plain footer are encrypted: the Parquet library passes over what
//! the footer says of that, and would read their bytes as pages.

use std::collections::BTreeSet;
use std::io::{self, Read};

use crate::thrift::{LIST, STRUCT, Thrift};

/// The leaves that have an encrypted chunk, by a plain footer. What can't be parsed has none: the
/// library says what is wrong with it.
pub fn encrypted_leaves(footer: &[u8]) -> BTreeSet<usize> {
    let mut source = footer;
    let mut thrift = Thrift::new(&mut source, footer.len());
    let mut leaves = BTreeSet::new();
    // What was found before the end of a torn footer is as true as the rest.
    let _ = file(&mut thrift, &mut leaves);
    leaves
}

/// Calls `each` with the fields of a struct: kind and number. It has to read or skip their values.
fn fields<R: Read>(
    thrift: &mut Thrift<'_, R>,
    mut each: impl FnMut(&mut Thrift<'_, R>, u8, i64) -> io::Result<()>,
) -> io::Result<()> {
    let mut field = 0;
    while let Some(kind) = thrift.field(&mut field)? {
        each(thrift, kind, field)?;
    }
    Ok(())
}

fn file<R: Read>(thrift: &mut Thrift<'_, R>, leaves: &mut BTreeSet<usize>) -> io::Result<()> {
    fields(thrift, |thrift, kind, field| match (field, kind) {
        (4, LIST) => {
            let (kind, groups) = thrift.list()?;
            for _ in 0..groups {
                match kind {
                    STRUCT => row_group(thrift, leaves)?,
                    _ => thrift.skip(kind)?,
                }
            }
            Ok(())
        }
        _ => thrift.skip(kind),
    })
}

fn row_group<R: Read>(thrift: &mut Thrift<'_, R>, leaves: &mut BTreeSet<usize>) -> io::Result<()> {
    fields(thrift, |thrift, kind, field| match (field, kind) {
        (1, LIST) => {
            let (kind, chunks) = thrift.list()?;
            for leaf in 0..usize::try_from(chunks).unwrap_or(0) {
                match kind {
                    STRUCT => fields(thrift, |thrift, kind, field| {
                        // `crypto_metadata` and `encrypted_column_metadata`.
                        if matches!(field, 8 | 9) {
                            leaves.insert(leaf);
                        }
                        thrift.skip(kind)
                    })?,
                    _ => thrift.skip(kind)?,
                }
            }
            Ok(())
        }
        _ => thrift.skip(kind),
    })
}
