//! Why a row has no values.

use std::fmt;

/// Why an image could not be judged. The names are part of what users see: they are counted in
/// reports, and are the values of the column `filter_errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The image is null or has no bytes.
    Empty,
    /// The bytes are those of no image, or of a broken one.
    Undecodable,
    /// The image ends before its time.
    Truncated,
    /// An image of a kind that is not supported.
    UnsupportedFormat,
    /// More pixels, or more bytes, than an image may have.
    TooLarge,
    /// Decoding would take longer than it may.
    TooSlow,
    /// The decoder gave up in a way that it should not.
    DecoderPanic,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Undecodable,
        Self::Truncated,
        Self::UnsupportedFormat,
        Self::TooLarge,
        Self::TooSlow,
        Self::DecoderPanic,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Undecodable => "undecodable",
            Self::Truncated => "truncated",
            Self::UnsupportedFormat => "unsupported_format",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::DecoderPanic => "decoder_panic",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
