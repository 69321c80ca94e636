//! `exif_rotation`: how the image has to be turned to be upright.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `orientation` | 1..8 | tag 0x0112 (of the Exif block; of a TIFF, its own) if it is an integer 1..8, else null |
//! | `rotation` | degrees clockwise | 1, 2 → 0; 3, 4 → 180; 5, 8 → 270; 6, 7 → 90; null → 0 |
//! | `mirrored` | | `orientation` is 2, 4, 5 or 7 |
//! | `passed` | | `orientation` is null or 1 |

use crate::filters::exif::Exif;

/// What the filter says of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExifRotation {
    /// The tag.
    pub orientation: Option<i32>,
}

impl ExifRotation {
    /// Reads the tag.
    pub fn new(exif: &Exif) -> Self {
        Self {
            orientation: exif.orientation,
        }
    }

    /// Degrees clockwise.
    pub fn rotation(&self) -> i32 {
        match self.orientation {
            Some(3 | 4) => 180,
            Some(5 | 8) => 270,
            Some(6 | 7) => 90,
            _ => 0,
        }
    }

    /// Whether it has to be flipped, too.
    pub fn mirrored(&self) -> bool {
        matches!(self.orientation, Some(2 | 4 | 5 | 7))
    }

    /// Whether the image is upright as it is.
    pub fn passed(&self) -> bool {
        matches!(self.orientation, None | Some(1))
    }
}
