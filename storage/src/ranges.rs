//! Which bytes to fetch together.

use std::ops::Range;

/// Checks that a range lies within an object of `size` bytes.
pub(crate) fn check_within(range: &Range<u64>, size: u64) -> Result<(), String> {
    if range.start > range.end || range.end > size {
        return Err(format!(
            "bytes {}..{} are asked for, but it has {size}",
            range.start, range.end
        ));
    }
    Ok(())
}
