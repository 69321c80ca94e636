//! What an image says of itself before a pixel is decoded. Formats are told by content, never
//! by name.

pub mod jpeg;
mod simple;
mod webp;

use crate::filters::exif::Exif;
use crate::filters::reason::Reason;

/// A format that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG, of an animation the first frame.
    Png,
    /// WebP, of an animation the first frame.
    WebP,
    /// GIF, the first frame.
    Gif,
    /// Windows bitmap.
    Bmp,
    /// TIFF, the first page.
    Tiff,
}

/// A header that could be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Format.
    pub format: Format,
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The Exif block, or nothing but nulls.
    pub exif: Exif,
    /// Quality that a JPEG's quantisation table stands for.
    pub quality: Option<i32>,
    /// Bytes that a pixel may take while it is decoded.
    pub bytes_per_pixel: u64,
    /// Times that the pixels are gone through while they are decoded.
    pub passes: u64,
    /// Pixels that the decoder makes: a frame of a GIF may be larger than the image.
    pub decoded_pixels: u64,
    /// Where a JPEG's own end marker ends, if it has one. What follows is none of the picture's.
    pub end: Option<usize>,
}

impl Header {
    /// Reads the header of an image.
    pub fn read(bytes: &[u8]) -> Result<Self, Reason> {
        let format = sniff(bytes)?;
        let header = match format {
            Format::Jpeg => jpeg::read(bytes),
            Format::Png => simple::png(bytes),
            Format::WebP => webp::read(bytes),
            Format::Gif => simple::gif(bytes),
            Format::Bmp => simple::bmp(bytes),
            Format::Tiff => simple::tiff(bytes),
        }?;
        if header.width == 0 || header.height == 0 {
            return Err(Reason::Undecodable);
        }
        Ok(header)
    }

    /// Width times height.
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    fn new(format: Format, width: u32, height: u32, bytes_per_pixel: u64) -> Self {
        Self {
            format,
            width,
            height,
            exif: Exif::default(),
            quality: None,
            bytes_per_pixel,
            passes: 1,
            decoded_pixels: u64::from(width) * u64::from(height),
            end: None,
        }
    }
}

/// Brands of ISO media files that hold still pictures: AVIF, HEIC and their kin.
const STILL_BRANDS: [&[u8; 4]; 10] = [
    b"avif", b"avis", b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"miaf",
];

/// The format, by the first bytes. Images of a known kind that is not supported are told from
/// what is no image at all.
fn sniff(bytes: &[u8]) -> Result<Format, Reason> {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    let at = |position: usize, magic: &[u8]| {
        bytes
            .get(position..)
            .is_some_and(|rest| rest.starts_with(magic))
    };
    if starts(b"\xff\xd8\xff") {
        Ok(Format::Jpeg)
    } else if starts(b"\x89PNG\r\n\x1a\n") {
        Ok(Format::Png)
    } else if starts(b"RIFF") && at(8, b"WEBP") {
        Ok(Format::WebP)
    } else if starts(b"GIF87a") || starts(b"GIF89a") {
        Ok(Format::Gif)
    } else if starts(b"BM") && bytes.len() >= 18 {
        Ok(Format::Bmp)
    } else if starts(b"II\x2a\0")
        || starts(b"MM\0\x2a")
        || starts(b"II\x2b\0")
        || starts(b"MM\0\x2b")
    {
        Ok(Format::Tiff)
    } else if at(4, b"ftyp") && STILL_BRANDS.iter().any(|brand| at(8, *brand))
        || starts(b"\0\0\0\x0cJXL \r\n\x87\n")
        || starts(b"\xff\x0a")
        || starts(b"\0\0\0\x0cjP  \r\n\x87\n")
        || starts(b"\xff\x4f\xff\x51")
        || starts(b"8BPS")
        || starts(b"qoif")
        || starts(b"\0\0\x01\0")
        || starts(b"\0\0\x02\0")
        || starts(b"#?RADIANCE")
        || starts(b"\x76\x2f\x31\x01")
        || starts(b"DDS ")
        || starts(b"farbfeld")
        || is_portable_map(bytes)
    {
        Err(Reason::UnsupportedFormat)
    } else {
        Err(Reason::Undecodable)
    }
}

/// `P1` to `P7` and white space.
fn is_portable_map(bytes: &[u8]) -> bool {
    matches!(bytes, [b'P', b'1'..=b'7', space, ..] if space.is_ascii_whitespace())
}

/// Reads numbers from the front of a slice; `None` past its end.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_the_format() {
        let table: [(&[u8], Result<Format, Reason>); 9] = [
            (b"\xff\xd8\xff\xe0", Ok(Format::Jpeg)),
            (b"\x89PNG\r\n\x1a\n", Ok(Format::Png)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Ok(Format::WebP)),
            (b"RIFF\0\0\0\0WAVEfmt ", Err(Reason::Undecodable)),
            (b"GIF89a", Ok(Format::Gif)),
            (b"MM\0\x2a\0\0\0\x08", Ok(Format::Tiff)),
            (b"\0\0\0\x1cftypavif", Err(Reason::UnsupportedFormat)),
            (b"\0\0\0\x1cftypmp42", Err(Reason::Undecodable)),
            (b"<!DOCTYPE html>", Err(Reason::Undecodable)),
        ];
        for (bytes, format) in table {
            assert_eq!(sniff(bytes), format, "{bytes:?}");
        }
    }
}
