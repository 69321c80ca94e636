//! `texture`: contrast within small windows.
//!
//! `U = 25 * sum(Y^2) - (sum Y)^2` over the 5x5 window of a pixel, mirrored at the border without
//! repeating the edge, exact in 32 bits; `sqrt(U) / 25` is the window's standard deviation.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `local_std` | levels | mean of `sqrt(U) / 25`, roots in single precision |
//! | `flat_ratio` | share of pixels | `U < 2500`: a standard deviation below 2 |
//! | `passed` | | `local_std >= 2` |

use std::ops::Range;

use crate::filters::pixels::{Luma, mirror};
use crate::filters::simd::{Level, dispatch};

const RADIUS: usize = 2;
const WINDOW: usize = 2 * RADIUS + 1;
/// Roots are added up in this many lanes, whatever the CPU: floats must be added in one order.
const LANES: usize = 16;

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Texture {
    /// Mean standard deviation of a window.
    pub local_std: f64,
    /// Share of flat windows.
    pub flat_ratio: f64,
}

impl Texture {
    /// Whether the image has any texture.
    pub fn passed(&self) -> bool {
        self.local_std >= 2.0
    }
}

/// Sums over the columns of the current window, and over the rows seen so far.
#[derive(Debug, Default)]
pub struct Windows {
    pixels: u64,
    roots: f64,
    flat: u64,
    /// Sum of each column of the window, with the border's columns on both sides.
    columns: Vec<u16>,
    /// Sum of squares of each column.
    squares: Vec<u32>,
    row_of_roots: Vec<f32>,
}

impl Windows {
    /// Forgets everything but its buffers.
    pub fn clear(&mut self) {
        (self.pixels, self.roots, self.flat) = (0, 0.0, 0);
    }

    /// Adds rows, which must follow those added before; two rows after them must be there, too.
    pub fn add(&mut self, level: Level, luma: Luma<'_>, rows: Range<usize>) {
        let width = luma.width;
        let row_at = |at: isize| luma.row(mirror(at, luma.height));
        for row in rows {
            if row == 0 {
                self.columns.clear();
                self.columns.resize(width + 2 * RADIUS, 0);
                self.squares.clear();
                self.squares.resize(width + 2 * RADIUS, 0);
                self.row_of_roots.resize(width, 0.0);
            }
            let columns = &mut self.columns[RADIUS..RADIUS + width];
            let squares = &mut self.squares[RADIUS..RADIUS + width];
            let radius = RADIUS as isize;
            if row == 0 {
                for at in -radius..=radius {
                    dispatch!(level, _simd => enter(row_at(at), columns, squares));
                }
            } else {
                let (entering, leaving) = (row as isize + radius, row as isize - radius - 1);
                dispatch!(level, _simd => slide(row_at(entering), row_at(leaving), columns, squares));
            }
            for outside in 1..=RADIUS {
                let (before, after) = (RADIUS - outside, RADIUS + width - 1 + outside);
                let left = RADIUS + mirror(-(outside as isize), width);
                let right = RADIUS + mirror((width - 1 + outside) as isize, width);
                self.columns[before] = self.columns[left];
                self.squares[before] = self.squares[left];
                self.columns[after] = self.columns[right];
                self.squares[after] = self.squares[right];
            }
            let roots = &mut self.row_of_roots[..width];
            let (columns, squares) = (&self.columns, &self.squares);
            let flat = dispatch!(level, _simd => deviations(columns, squares, roots));
            self.roots += dispatch!(level, _simd => total(roots));
            self.flat += u64::from(flat);
            self.pixels += width as u64;
        }
    }

    /// The result.
    pub fn finish(&self) -> Texture {
        let pixels = self.pixels as f64;
        Texture {
            local_std: self.roots / (WINDOW * WINDOW) as f64 / pixels,
            flat_ratio: self.flat as f64 / pixels,
        }
    }
}

#[inline(always)]
fn enter(row: &[u8], columns: &mut [u16], squares: &mut [u32]) {
    let width = row.len();
    let (columns, squares) = (&mut columns[..width], &mut squares[..width]);
    for at in 0..width {
        let value = u16::from(row[at]);
        columns[at] += value;
        squares[at] += u32::from(value * value);
    }
}

#[inline(always)]
fn slide(entering: &[u8], leaving: &[u8], columns: &mut [u16], squares: &mut [u32]) {
    let width = entering.len();
    let leaving = &leaving[..width];
    let (columns, squares) = (&mut columns[..width], &mut squares[..width]);
    for at in 0..width {
        let (entering, leaving) = (u16::from(entering[at]), u16::from(leaving[at]));
        columns[at] = columns[at].wrapping_add(entering).wrapping_sub(leaving);
        squares[at] = squares[at]
            .wrapping_add(u32::from(entering * entering))
            .wrapping_sub(u32::from(leaving * leaving));
    }
}

/// The root of `U` for each pixel, and how many windows are flat.
#[inline(always)]
fn deviations(columns: &[u16], squares: &[u32], roots: &mut [f32]) -> u32 {
    let width = roots.len();
    let columns = [
        &columns[..width],
        &columns[1..width + 1],
        &columns[2..width + 2],
        &columns[3..width + 3],
        &columns[4..width + 4],
    ];
    let squares = [
        &squares[..width],
        &squares[1..width + 1],
        &squares[2..width + 2],
        &squares[3..width + 3],
        &squares[4..width + 4],
    ];
    let mut flat = 0_u32;
    for at in 0..width {
        // At most 25 * 255, so both the sum and its square fit.
        let sum =
            columns[0][at] + columns[1][at] + columns[2][at] + columns[3][at] + columns[4][at];
        let sum = i32::from(sum as i16);
        let square =
            squares[0][at] + squares[1][at] + squares[2][at] + squares[3][at] + squares[4][at];
        let spread = 25 * square as i32 - sum * sum;
        flat += u32::from(spread < 2500);
        roots[at] = (spread as f32).sqrt();
    }
    flat
}

#[inline(always)]
fn total(roots: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (whole, rest) = roots.as_chunks::<LANES>();
    for roots in whole {
        for (lane, root) in lanes.iter_mut().zip(roots) {
            *lane += f64::from(*root);
        }
    }
    for (lane, root) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(*root);
    }
    lanes.iter().sum()
}
