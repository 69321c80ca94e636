//! Decoded pixels, and what all filters share of them: colour planes and luma.

use crate::filters::simd::{Level, dispatch};

/// Pixels of one run that colour kernels work on at a time: small enough that its planes stay
/// in the first-level cache.
pub const RUN: usize = 4096;

/// How samples of 8 bit lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One sample a pixel.
    Gray,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue, and a fourth sample that is ignored.
    Rgbx,
}

impl Layout {
    /// Bytes of a pixel.
    pub fn samples(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
            Self::Rgbx => 4,
        }
    }
}

/// A decoded image, rows without padding.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// `width * height` pixels.
    pub samples: &'a [u8],
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Layout of the samples.
    pub layout: Layout,
}

/// A plane of luma, rows without padding.
#[derive(Debug, Clone, Copy)]
pub struct Luma<'a> {
    /// `width * height` samples; while bands are made, only those made so far.
    pub samples: &'a [u8],
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl<'a> Luma<'a> {
    /// One row.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [u8] {
        &self.samples[row * self.width..(row + 1) * self.width]
    }
}

/// The row or column that stands for position `at` outside an axis of `length` pixels: mirrored
/// without repeating the edge (`cb|abc|ba`); an axis of one pixel has only that one.
#[inline]
pub fn mirror(at: isize, length: usize) -> usize {
    if length == 1 {
        return 0;
    }
    let period = 2 * (length - 1);
    let folded = at.unsigned_abs() % period;
    if folded >= length {
        period - folded
    } else {
        folded
    }
}

/// Colour planes of a run of pixels.
#[derive(Debug)]
pub struct ColourRun {
    red: Box<[u8; RUN]>,
    green: Box<[u8; RUN]>,
    blue: Box<[u8; RUN]>,
    length: usize,
}

impl Default for ColourRun {
    fn default() -> Self {
        Self {
            red: Box::new([0; RUN]),
            green: Box::new([0; RUN]),
            blue: Box::new([0; RUN]),
            length: 0,
        }
    }
}

impl ColourRun {
    /// Splits a run of at most [`RUN`] pixels into planes.
    pub fn split(&mut self, level: Level, samples: &[u8], layout: Layout) {
        let length = samples.len() / layout.samples();
        self.length = length;
        let (red, green, blue) = (
            &mut self.red[..length],
            &mut self.green[..length],
            &mut self.blue[..length],
        );
        match layout {
            Layout::Gray => {
                red.copy_from_slice(samples);
                green.copy_from_slice(samples);
                blue.copy_from_slice(samples);
            }
            Layout::Rgb => dispatch!(level, _simd => split_three(samples, red, green, blue)),
            Layout::Rgbx => dispatch!(level, _simd => split_four(samples, red, green, blue)),
        }
    }

    /// Red, green and blue of the run.
    pub fn planes(&self) -> [&[u8]; 3] {
        [
            &self.red[..self.length],
            &self.green[..self.length],
            &self.blue[..self.length],
        ]
    }

    /// Writes the luma of the run: `Y = (9798 R + 19235 G + 3735 B + 16384) >> 15`.
    pub fn luma(&self, level: Level, luma: &mut [u8]) {
        let [red, green, blue] = self.planes();
        dispatch!(level, _simd => weigh(red, green, blue, luma));
    }
}

#[inline(always)]
fn split_three(samples: &[u8], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
    let (pixels, _) = samples.as_chunks::<3>();
    for (((pixel, red), green), blue) in pixels.iter().zip(red).zip(green).zip(blue) {
        *red = pixel[0];
        *green = pixel[1];
        *blue = pixel[2];
    }
}

#[inline(always)]
fn split_four(samples: &[u8], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
    let (pixels, _) = samples.as_chunks::<4>();
    for (((pixel, red), green), blue) in pixels.iter().zip(red).zip(green).zip(blue) {
        let pixel = u32::from_le_bytes(*pixel);
        *red = pixel as u8;
        *green = (pixel >> 8) as u8;
        *blue = (pixel >> 16) as u8;
    }
}

#[inline(always)]
fn weigh(red: &[u8], green: &[u8], blue: &[u8], luma: &mut [u8]) {
    for (((red, green), blue), luma) in red.iter().zip(green).zip(blue).zip(luma) {
        let (red, green, blue) = (i32::from(*red), i32::from(*green), i32::from(*blue));
        *luma = ((9798 * red + 19235 * green + 3735 * blue + 16384) >> 15) as u8;
    }
}
