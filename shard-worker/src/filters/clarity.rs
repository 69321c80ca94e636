//! `clarity`: sharpness, as the spread of second differences.
//!
//! `L` is the 4-neighbour Laplacian of `Y` (`0 1 0 / 1 -4 1 / 0 1 0`), mirrored at the border
//! without repeating the edge, in exact integers.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `laplacian_var` | squared levels | population variance of `L` |
//! | `score` | | `ln(1 + laplacian_var)` |
//! | `passed` | | `laplacian_var >= 100` |

use std::ops::Range;

use crate::filters::pixels::{Luma, mirror};
use crate::filters::simd::{Level, dispatch};

/// Pixels whose squared Laplacians (at most `1020^2` each) fit into 32 bits when summed.
const RUN: usize = 4096;

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clarity {
    /// Variance of the Laplacian.
    pub laplacian_var: f64,
}

impl Clarity {
    /// On a scale of orders of magnitude.
    pub fn score(&self) -> f64 {
        // The C library's has other bits on CPUs with and without FMA.
        libm::log1p(self.laplacian_var)
    }

    /// Whether the image is not blurred.
    pub fn passed(&self) -> bool {
        self.laplacian_var >= 100.0
    }
}

/// Sums over the rows seen so far.
#[derive(Debug, Default)]
pub struct Laplacian {
    pixels: u64,
    sum: i64,
    squares: u64,
}

impl Laplacian {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds rows; the row after them must be there, too.
    pub fn add(&mut self, level: Level, luma: Luma<'_>, rows: Range<usize>) {
        for row in rows {
            let above = luma.row(mirror(row as isize - 1, luma.height));
            let here = luma.row(row);
            let below = luma.row(mirror(row as isize + 1, luma.height));
            let width = luma.width;
            self.pixels += width as u64;
            for edge in [0, width - 1].into_iter().take(width) {
                let left = here[mirror(edge as isize - 1, width)];
                let right = here[mirror(edge as isize + 1, width)];
                let value = laplacian(above[edge], left, here[edge], right, below[edge]);
                self.sum += i64::from(value);
                self.squares += u64::from(value.unsigned_abs()).pow(2);
            }
            let mut start = 1;
            while start + 1 < width {
                let end = (start + RUN).min(width - 1);
                let (sum, squares) = dispatch!(level, _simd => sums(
                    &above[start..end],
                    &here[start - 1..end + 1],
                    &below[start..end],
                ));
                self.sum += i64::from(sum);
                self.squares += u64::from(squares);
                start = end;
            }
        }
    }

    /// The result.
    pub fn finish(&self) -> Clarity {
        let scale = 1.0 / self.pixels as f64;
        let mean = self.sum as f64 * scale;
        let deviation = (self.squares as f64 * scale - mean * mean).max(0.0).sqrt();
        Clarity {
            laplacian_var: deviation * deviation,
        }
    }
}

#[inline(always)]
fn laplacian(above: u8, left: u8, here: u8, right: u8, below: u8) -> i16 {
    i16::from(above) + i16::from(left) + i16::from(right) + i16::from(below) - 4 * i16::from(here)
}

/// Sum and sum of squares over a run; `here` reaches one pixel further on both sides.
#[inline(always)]
fn sums(above: &[u8], here: &[u8], below: &[u8]) -> (i32, u32) {
    let length = above.len();
    let (left, right) = (&here[..length], &here[2..length + 2]);
    let (here, below) = (&here[1..=length], &below[..length]);
    let (mut sum, mut squares) = (0_i32, 0_u32);
    for at in 0..length {
        let value = i32::from(laplacian(
            above[at], left[at], here[at], right[at], below[at],
        ));
        sum += value;
        squares = squares.wrapping_add((value * value) as u32);
    }
    (sum, squares)
}
