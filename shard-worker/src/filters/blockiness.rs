//! Steps across the grid of 8x8 blocks against steps within the blocks.
//!
//! `(1 + Bx + By) / (1 + Ix + Iy)`: `Bx` is the mean of `|Y(r, c + 1) - Y(r, c)|` over the columns
//! `c` with `c % 8 == 7`, `Ix` that over the others; `By` and `Iy` likewise down the rows. An axis
//! shorter than 9 pixels adds nothing to either sum.

use std::ops::Range;

use crate::filters::pixels::Luma;
use crate::filters::simd::{Level, dispatch};

const BLOCK: usize = 8;
/// Differences of so many pixels fit into 32 bits when summed.
const RUN: usize = 1 << 20;

/// Sums of absolute differences over the rows seen so far.
#[derive(Debug, Default)]
pub struct Steps {
    across: Axis,
    down: Axis,
}

#[derive(Debug, Default)]
struct Axis {
    on_grid: u64,
    off_grid: u64,
}

impl Steps {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds rows; the row after them must be there, too.
    pub fn add(&mut self, level: Level, luma: Luma<'_>, rows: Range<usize>) {
        for row in rows {
            let here = luma.row(row);
            if luma.width > BLOCK {
                let all = distance(level, &here[..luma.width - 1], &here[1..]);
                let on_grid = u64::from(grid_steps(&here[BLOCK - 1..]));
                self.across.on_grid += on_grid;
                self.across.off_grid += all - on_grid;
            }
            if luma.height > BLOCK && row + 1 < luma.height {
                let all = distance(level, here, luma.row(row + 1));
                if row % BLOCK == BLOCK - 1 {
                    self.down.on_grid += all;
                } else {
                    self.down.off_grid += all;
                }
            }
        }
    }

    /// The ratio, for an image of this size.
    pub fn finish(&self, width: usize, height: usize) -> f64 {
        let (mut grid, mut inside) = (1.0, 1.0);
        for (axis, length, lines) in [(&self.across, width, height), (&self.down, height, width)] {
            if length <= BLOCK {
                continue;
            }
            let (steps, on_grid) = (length - 1, (length - 1) / BLOCK);
            let mean = |sum: u64, steps: usize| sum as f64 / (steps as f64 * lines as f64);
            grid += mean(axis.on_grid, on_grid);
            inside += mean(axis.off_grid, steps - on_grid);
        }
        grid / inside
    }
}

/// Sum of the steps from each block to the next, of a row that begins with a block's last pixel.
fn grid_steps(row: &[u8]) -> u32 {
    let (edges, rest) = row.as_chunks::<BLOCK>();
    let mut sum = 0;
    for edge in edges {
        sum += u32::from(edge[0].abs_diff(edge[1]));
    }
    if let [last, next, ..] = rest {
        sum += u32::from(last.abs_diff(*next));
    }
    sum
}

fn distance(level: Level, left: &[u8], right: &[u8]) -> u64 {
    let mut sum = 0;
    for start in (0..left.len()).step_by(RUN) {
        let end = (start + RUN).min(left.len());
        let (left, right) = (&left[start..end], &right[start..end]);
        sum += u64::from(dispatch!(level, _simd => differences(left, right)));
    }
    sum
}

#[inline(always)]
fn differences(left: &[u8], right: &[u8]) -> u32 {
    let right = &right[..left.len()];
    let mut sum = 0;
    for at in 0..left.len() {
        sum += u32::from(left[at].abs_diff(right[at]));
    }
    sum
}
