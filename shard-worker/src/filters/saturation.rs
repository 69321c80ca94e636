//! `saturation`: how colourful the pixels are.
//!
//! With `v = max(R, G, B)` and `d = v - min(R, G, B)` a pixel's saturation is
//! `S = (d * T[v] + 2048) >> 12`, `0..=255`, where `T[0] = 0` and `T[v]` is `255 * 4096 / v`
//! rounded half to even.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `mean` | 0..1 | mean of `S / 255` |
//! | `std` | 0..0.5 | population standard deviation of `S / 255` |
//! | `low_ratio` | share of pixels | `S <= 25` |
//! | `passed` | | `mean >= 0.05` |

use crate::filters::pixels::ColourRun;
use crate::filters::simd::{Level, dispatch};

/// Added to a float below `2^23`, leaves that float, rounded half to even, in its lowest bits.
const ROUND: f32 = 8_388_608.0;
const ROUNDED: u32 = 0x7f_ffff;

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saturation {
    /// Mean, 0..1.
    pub mean: f64,
    /// Population standard deviation.
    pub std: f64,
    /// Share of pixels with hardly any colour.
    pub low_ratio: f64,
}

impl Saturation {
    /// Whether the image is not gray.
    pub fn passed(&self) -> bool {
        self.mean >= 0.05
    }
}

/// Sums over the pixels seen so far.
#[derive(Debug, Default)]
pub struct Sums {
    pixels: u64,
    sum: u64,
    squares: u64,
    low: u64,
}

impl Sums {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds a run of pixels.
    pub fn add(&mut self, level: Level, run: &ColourRun) {
        let [red, green, blue] = run.planes();
        let (sum, squares, low) = dispatch!(level, _simd => sums(red, green, blue));
        self.pixels += red.len() as u64;
        self.sum += u64::from(sum);
        self.squares += u64::from(squares);
        self.low += u64::from(low);
    }

    /// The result.
    pub fn finish(&self) -> Saturation {
        let pixels = self.pixels as f64;
        let mean = self.sum as f64 / pixels;
        let variance = (self.squares as f64 / pixels - mean * mean).max(0.0);
        Saturation {
            mean: mean / 255.0,
            std: variance.sqrt() / 255.0,
            low_ratio: self.low as f64 / pixels,
        }
    }
}

/// Sums over at most [`RUN`](crate::filters::pixels::RUN) pixels, which fit into 32 bits.
#[inline(always)]
fn sums(red: &[u8], green: &[u8], blue: &[u8]) -> (u32, u32, u32) {
    let (mut sum, mut squares, mut low) = (0_u32, 0_u32, 0_u32);
    for ((red, green), blue) in red.iter().zip(green).zip(blue) {
        let value = (*red).max(*green).max(*blue);
        let range = value - (*red).min(*green).min(*blue);
        let saturation = saturation(value, range);
        sum += saturation;
        squares += saturation * saturation;
        low += u32::from(saturation <= 25);
    }
    (sum, squares, low)
}

/// `S` of a pixel, in floats that hold every intermediate value exactly: a vector of divisions
/// is faster than as many look-ups in a table.
#[inline(always)]
fn saturation(value: u8, range: u8) -> u32 {
    // Black has no range, so what it is divided by does not matter.
    let value = f32::from(value.max(1));
    let table = (1_044_480.0 / value + ROUND).to_bits() & ROUNDED;
    let scaled = f32::from(range) * (table as i32 as f32) + 2048.0;
    ((scaled + ROUND).to_bits() & ROUNDED) >> 12
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `255 * 4096 / value`, rounded half to even, in integers.
    fn table(value: u32) -> u32 {
        let (quotient, rest) = (1_044_480 / value, 1_044_480 % value);
        match (2 * rest).cmp(&value) {
            std::cmp::Ordering::Less => quotient,
            std::cmp::Ordering::Greater => quotient + 1,
            std::cmp::Ordering::Equal => quotient + quotient % 2,
        }
    }

    #[test]
    fn floats_give_the_integer_formula_for_every_pixel() {
        for value in 1..=255_u8 {
            for range in 0..=value {
                let expected = (u32::from(range) * table(u32::from(value)) + 2048) >> 12;
                assert_eq!(saturation(value, range), expected, "{value} {range}");
            }
        }
        assert_eq!(saturation(0, 0), 0);
    }
}
