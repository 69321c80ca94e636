//! `exif_metadata`: what the camera wrote about the picture.
//!
//! | field | unit | formula |
//! |---|---|---|
//! | `has_exif` | | `exif_bytes > 0` |
//! | `exif_bytes` | bytes | size of the TIFF block without its prefix `Exif\0\0`; 0 if there is none |
//! | `make`, `model`, `software`, `datetime` | text | 0x010F, 0x0110, 0x0131, 0x0132: Latin-1 up to the first NUL, trimmed; empty → null |
//! | `iso` | ISO | 0x8827, first value, an integer |
//! | `exposure_time` | seconds | 0x829A; denominator 0 → null |
//! | `f_number` | | 0x829D, likewise |
//! | `focal_length` | millimetres | 0x920A, likewise |
//! | `has_gps` | | tag 0x8825 is in the first directory |
//! | `passed` | | true |
//!
//! The block is APP1 of a JPEG, `eXIf` of a PNG or `EXIF` of a WebP. A malformed tag, or one of
//! another type, is null.

pub use crate::filters::exif::Exif as ExifMetadata;
