//! `color_entropy`: how many colours share the image, and how evenly.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `entropy` | bits, 0..9 | Shannon entropy of the joint histogram of `(R >> 5, G >> 5, B >> 5)`, 512 bins |
//! | `normalized` | 0..1 | `entropy / 9` |
//! | `colors` | bins | bins that are not empty |
//! | `passed` | | `entropy >= 1.5` |

use crate::filters::histogram::Histogram;
use crate::filters::pixels::{ColourRun, RUN};
use crate::filters::simd::{Level, dispatch};

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColorEntropy {
    /// Bits.
    pub entropy: f64,
    /// Bins that are not empty.
    pub colors: i32,
}

impl ColorEntropy {
    /// Entropy over its largest value.
    pub fn normalized(&self) -> f64 {
        self.entropy / 9.0
    }

    /// Whether the image is no plain area.
    pub fn passed(&self) -> bool {
        self.entropy >= 1.5
    }
}

/// The histogram so far.
#[derive(Debug)]
pub struct Bins {
    histogram: Histogram<512>,
    bins: Box<[u16; RUN]>,
}

impl Default for Bins {
    fn default() -> Self {
        Self {
            histogram: Histogram::default(),
            bins: Box::new([0; RUN]),
        }
    }
}

impl Bins {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.histogram.clear();
    }

    /// Adds a run of pixels.
    pub fn add(&mut self, level: Level, run: &ColourRun) {
        let [red, green, blue] = run.planes();
        let bins = &mut self.bins[..red.len()];
        dispatch!(level, _simd => bin(red, green, blue, bins));
        self.histogram.add(bins);
    }

    /// The result.
    pub fn finish(&mut self) -> ColorEntropy {
        let counts = self.histogram.counts();
        let pixels: u64 = counts.iter().sum();
        let mut entropy = 0.0;
        let mut colors = 0;
        for count in counts.iter().filter(|count| **count > 0) {
            let share = *count as f64 / pixels as f64;
            // The C library's has other bits on CPUs with and without FMA.
            entropy -= share * libm::log2(share);
            colors += 1;
        }
        ColorEntropy {
            entropy: entropy.max(0.0),
            colors,
        }
    }
}

#[inline(always)]
fn bin(red: &[u8], green: &[u8], blue: &[u8], bins: &mut [u16]) {
    for (((red, green), blue), bin) in red.iter().zip(green).zip(blue).zip(bins) {
        let (red, green, blue) = (u16::from(*red), u16::from(*green), u16::from(*blue));
        *bin = (red >> 5) << 6 | (green >> 5) << 3 | blue >> 5;
    }
}
