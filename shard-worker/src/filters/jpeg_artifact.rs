//! `jpeg_artifact`: what compression has done to the image.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `is_jpeg` | | the bytes start with `FF D8 FF` |
//! | `blockiness` | ratio | see [`blockiness`](crate::filters::blockiness) |
//! | `quality` | 1..100 | JPEG only: `s` is the mean of `100 * q / b` over the 64 entries of the last quantisation table 0 before the first scan and of the standard's luminance table; `(200 - s) / 2` if `s <= 100`, else `5000 / s`, rounded half to even |
//! | `passed` | | `blockiness <= 1.5` |

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JpegArtifact {
    /// Whether the image is a JPEG.
    pub is_jpeg: bool,
    /// Steps across the grid of blocks over steps within.
    pub blockiness: f64,
    /// Quality that the quantisation table stands for.
    pub quality: Option<i32>,
}

impl JpegArtifact {
    /// Whether blocks do not show.
    pub fn passed(&self) -> bool {
        self.blockiness <= 1.5
    }
}

/// The luminance table of annex K of the standard, in zigzag order.
const STANDARD: [u16; 64] = [
    16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37,
    29, 40, 58, 51, 61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81,
    87, 95, 98, 103, 104, 103, 62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99,
];

/// The quality, 1..100, at which the usual encoder would have used this luminance table (in
/// zigzag order). Too high below about 25, where tables clip at 255.
pub fn quality(table: &[u16; 64]) -> i32 {
    let ratios = table.iter().zip(&STANDARD);
    let sum: f64 = ratios
        .map(|(entry, standard)| 100.0 * f64::from(*entry) / f64::from(*standard))
        .sum();
    let scale = sum / 64.0;
    let quality = if scale <= 100.0 {
        (200.0 - scale) / 2.0
    } else {
        5000.0 / scale
    };
    quality.round_ties_even().clamp(1.0, 100.0) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_table_is_quality_50() {
        assert_eq!(quality(&STANDARD), 50);
        assert_eq!(quality(&[1; 64]), 99);
        assert_eq!(quality(&STANDARD.map(|entry| 2 * entry)), 25);
        assert_eq!(quality(&[u16::MAX; 64]), 1);
    }
}
