//! Why a row lacks values.

use std::fmt;

/// Why a row lacks a value: why its image could not be judged, or that a value of an input does
/// not fit. The names are part of what users see: they are counted in reports, and those about
/// images are the values of the column `filter_errors`.
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
    /// A value of an input is none of the type that is declared for it.
    DoesNotFit,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Undecodable,
        Self::Truncated,
        Self::UnsupportedFormat,
        Self::TooLarge,
        Self::TooSlow,
        Self::DecoderPanic,
        Self::DoesNotFit,
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
            Self::DoesNotFit => "does_not_fit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
