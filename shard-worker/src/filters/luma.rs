//! `luma`: how light the image is, and how its light is spread.
//!
//! All of `Y`, 0..255; `N` is the number of pixels.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `mean`, `std` | 0..255 | mean and population standard deviation |
//! | `p05`, `p50`, `p95` | 0..255 | smallest `v` with `100 * count(Y <= v) >= p * N` |
//! | `dark_ratio`, `bright_ratio` | share of pixels | `Y < 16`, `Y > 239` |
//! | `passed` | | `20 <= mean <= 235` |

use crate::filters::histogram::Histogram;

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LumaSpread {
    /// Mean.
    pub mean: f64,
    /// Population standard deviation.
    pub std: f64,
    /// Percentiles 5, 50 and 95.
    pub percentiles: [i32; 3],
    /// Share of dark pixels.
    pub dark_ratio: f64,
    /// Share of bright pixels.
    pub bright_ratio: f64,
}

impl LumaSpread {
    /// Whether the image is neither black nor white.
    pub fn passed(&self) -> bool {
        (20.0..=235.0).contains(&self.mean)
    }
}

/// The histogram so far.
#[derive(Debug, Default)]
pub struct Levels(Histogram<256>);

impl Levels {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds samples.
    pub fn add(&mut self, luma: &[u8]) {
        self.0.add(luma);
    }

    /// The result.
    pub fn finish(&mut self) -> LumaSpread {
        let counts = self.0.counts();
        let pixels: u64 = counts.iter().sum();
        let weighted = |power: u32| -> u64 {
            let levels = counts.iter().zip(0_u64..);
            levels.map(|(count, level)| count * level.pow(power)).sum()
        };
        let share = |count: u64| count as f64 / pixels as f64;
        let mean = share(weighted(1));
        let percentile = |percent: u128| {
            let mut below = 0;
            let reached = counts.iter().position(|count| {
                below += u128::from(*count);
                100 * below >= percent * u128::from(pixels)
            });
            reached.unwrap_or(255) as i32
        };
        LumaSpread {
            mean,
            std: (share(weighted(2)) - mean * mean).max(0.0).sqrt(),
            percentiles: [5, 50, 95].map(percentile),
            dark_ratio: share(counts[..16].iter().sum()),
            bright_ratio: share(counts[240..].iter().sum()),
        }
    }
}
