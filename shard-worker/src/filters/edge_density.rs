//! `edge_density`: the share of pixels on edges, as Canny's detector finds them.
//!
//! No blur; 3x3 Sobel `dx`, `dy` of `Y`, the border repeated; `m = |dx| + |dy|`, 0 outside the
//! image. A pixel is a candidate if `m > 100` and it is a ridge: with `ax = |dx|`,
//! `ay = |dy| << 15`, `t = 13573 * ax`, it must hold
//!
//! * if `ay < t`: `m > left` and `m >= right`;
//! * else if `ay > t + (ax << 16)`: `m > above` and `m >= below`;
//! * else if `dx` and `dy` have opposite signs: `m > above right` and `m > below left`;
//! * else `m > above left` and `m > below right`.
//!
//! Candidates with `m > 200` are edges; so is any candidate that is connected to one through
//! candidates, diagonals included.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `edge_pixels` | pixels | pixels on edges |
//! | `density` | share of pixels | `edge_pixels / N` |
//! | `passed` | | `0.001 <= density <= 0.25` |

use std::ops::Range;

use crate::filters::hysteresis::BitMaps;
use crate::filters::pixels::Luma;
use crate::filters::simd::{Level, dispatch};

const LOW: i16 = 100;
const HIGH: i16 = 200;

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EdgeDensity {
    /// Pixels on edges.
    pub edge_pixels: u64,
    /// Their share.
    pub density: f64,
}

impl EdgeDensity {
    /// Whether the image has neither hardly any edges nor almost only edges.
    pub fn passed(&self) -> bool {
        (0.001..=0.25).contains(&self.density)
    }
}

/// Gradients of a row.
#[derive(Debug, Default)]
struct Gradients {
    dx: Vec<i16>,
    dy: Vec<i16>,
    /// `m`, with a column of zeros on both sides.
    magnitude: Vec<i16>,
}

impl Gradients {
    fn resize(&mut self, width: usize) {
        self.dx.resize(width, 0);
        self.dy.resize(width, 0);
        self.magnitude.clear();
        self.magnitude.resize(width + 2, 0);
    }
}

/// Candidates found so far; the rows of gradients around the one that is decided.
#[derive(Debug, Default)]
pub struct Canny {
    above: Gradients,
    here: Gradients,
    below: Gradients,
    /// Sums and differences down the columns, with the border's column on both sides.
    smooth: Vec<i16>,
    steps: Vec<i16>,
    marks: Vec<u8>,
    maps: BitMaps,
}

impl Canny {
    /// Prepares for an image of this size.
    pub fn start(&mut self, width: usize, height: usize) {
        for gradients in [&mut self.above, &mut self.here, &mut self.below] {
            gradients.resize(width);
        }
        self.smooth.resize(width + 2, 0);
        self.steps.resize(width + 2, 0);
        self.marks.resize(width.next_multiple_of(64), 0);
        self.marks.fill(0);
        self.maps.start(width, height);
    }

    /// Adds rows, which must follow those added before; the row after them must be there, too.
    pub fn add(&mut self, level: Level, luma: Luma<'_>, rows: Range<usize>) {
        for row in rows {
            self.gradients(level, luma, row);
            if row > 0 {
                self.decide(level, row - 1);
            }
            std::mem::swap(&mut self.above, &mut self.here);
            std::mem::swap(&mut self.here, &mut self.below);
            if row + 1 == luma.height {
                // Below the last row there is nothing.
                self.below.magnitude.fill(0);
                self.decide(level, row);
            }
        }
    }

    /// Fills `below` with the gradients of a row.
    fn gradients(&mut self, level: Level, luma: Luma<'_>, row: usize) {
        let last = luma.height - 1;
        let rows = [row.saturating_sub(1), row, (row + 1).min(last)].map(|row| luma.row(row));
        let width = luma.width;
        let (smooth, steps) = (&mut self.smooth[..width + 2], &mut self.steps[..width + 2]);
        dispatch!(level, _simd => down(rows, &mut smooth[1..=width], &mut steps[1..=width]));
        for column in [&mut *smooth, &mut *steps] {
            column[0] = column[1];
            column[width + 1] = column[width];
        }
        let Gradients { dx, dy, magnitude } = &mut self.below;
        let magnitude = &mut magnitude[1..=width];
        dispatch!(level, _simd => across(smooth, steps, dx, dy, magnitude));
    }

    /// Marks the candidates of the row in `here`.
    fn decide(&mut self, level: Level, row: usize) {
        let Gradients { dx, dy, .. } = &self.here;
        let magnitudes = [&self.above, &self.here, &self.below].map(|row| &row.magnitude[..]);
        let marks = &mut self.marks[..dx.len()];
        dispatch!(level, _simd => ridges(dx, dy, magnitudes, marks));
        let (candidates, edges) = self.maps.row_mut(row);
        let (words, _) = self.marks.as_chunks::<64>();
        dispatch!(level, _simd => pack(words, candidates, edges));
    }

    /// The result.
    pub fn finish(&mut self, width: usize, height: usize) -> EdgeDensity {
        let edge_pixels = self.maps.connect();
        EdgeDensity {
            edge_pixels,
            density: edge_pixels as f64 / (width as f64 * height as f64),
        }
    }
}

#[inline(always)]
fn down([above, here, below]: [&[u8]; 3], smooth: &mut [i16], steps: &mut [i16]) {
    let width = smooth.len();
    let (above, here, below) = (&above[..width], &here[..width], &below[..width]);
    let steps = &mut steps[..width];
    for at in 0..width {
        let (above, below) = (i16::from(above[at]), i16::from(below[at]));
        smooth[at] = above + 2 * i16::from(here[at]) + below;
        steps[at] = below - above;
    }
}

#[inline(always)]
fn across(smooth: &[i16], steps: &[i16], dx: &mut [i16], dy: &mut [i16], magnitude: &mut [i16]) {
    let width = dx.len();
    let (left, right) = (&smooth[..width], &smooth[2..width + 2]);
    let (before, at, after) = (&steps[..width], &steps[1..=width], &steps[2..width + 2]);
    let (dy, magnitude) = (&mut dy[..width], &mut magnitude[..width]);
    for column in 0..width {
        let horizontal = right[column] - left[column];
        let vertical = before[column] + 2 * at[column] + after[column];
        dx[column] = horizontal;
        dy[column] = vertical;
        magnitude[column] = horizontal.abs() + vertical.abs();
    }
}

/// 1 for a candidate, 3 for one that is an edge by itself.
///
/// The comparisons with `t` need no more than 16 bits: `floor(t / 2^15)` is `steep` below, and
/// as 13573 is odd and `ax < 2^15`, `t` is no multiple of `2^15` but for `ax = 0`, where a
/// gradient is vertical or nothing.
#[inline(always)]
fn ridges(dx: &[i16], dy: &[i16], [above, here, below]: [&[i16]; 3], marks: &mut [u8]) {
    let width = marks.len();
    let (dx, dy) = (&dx[..width], &dy[..width]);
    let above = [&above[..width], &above[1..=width], &above[2..width + 2]];
    let here = [&here[..width], &here[1..=width], &here[2..width + 2]];
    let below = [&below[..width], &below[1..=width], &below[2..width + 2]];
    for at in 0..width {
        let (ax, ay) = (dx[at].unsigned_abs(), dy[at].unsigned_abs());
        let steep = ((u32::from(ax) * 27146) >> 16) as u16;
        let is_horizontal = ay <= steep;
        let is_vertical = ay > 2 * ax + steep;
        let is_rising = (dx[at] ^ dy[at]) < 0;
        let strength = here[1][at];
        let along_row = (strength > here[0][at]) & (strength >= here[2][at]);
        let along_column = (strength > above[1][at]) & (strength >= below[1][at]);
        let rising = (strength > above[2][at]) & (strength > below[0][at]);
        let falling = (strength > above[0][at]) & (strength > below[2][at]);
        let diagonal = (is_rising & rising) | (!is_rising & falling);
        let is_ridge = (is_horizontal & along_row)
            | (!is_horizontal & ((is_vertical & along_column) | (!is_vertical & diagonal)));
        let candidate = is_ridge & (strength > LOW);
        let edge = candidate & (strength > HIGH);
        marks[at] = u8::from(candidate) | u8::from(edge) << 1;
    }
}

/// Gathers the lowest and the second bit of each mark into maps of bits.
#[inline(always)]
fn pack(marks: &[[u8; 64]], candidates: &mut [u64], edges: &mut [u64]) {
    for ((marks, candidates), edges) in marks.iter().zip(candidates).zip(edges) {
        let (mut low, mut high) = (0, 0);
        let (eights, _) = marks.as_chunks::<8>();
        for (position, eight) in eights.iter().enumerate() {
            let eight = u64::from_le_bytes(*eight);
            low |= gather(eight & 0x0101_0101_0101_0101) << (8 * position);
            high |= gather((eight >> 1) & 0x0101_0101_0101_0101) << (8 * position);
        }
        *candidates = low;
        *edges = high;
    }
}

/// The lowest bits of eight bytes as one byte.
#[inline(always)]
fn gather(bits: u64) -> u64 {
    bits.wrapping_mul(0x0102_0408_1020_4080) >> 56
}
