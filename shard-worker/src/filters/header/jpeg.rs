//! The markers of a JPEG before its first scan.

use crate::filters::exif;
use crate::filters::header::{Format, Header, be16};
use crate::filters::jpeg_artifact::quality;
use crate::filters::reason::Reason;

const START_OF_SCAN: u8 = 0xDA;
const END_OF_IMAGE: u8 = 0xD9;
const QUANTISATION_TABLES: u8 = 0xDB;
const APPLICATION_1: u8 = 0xE1;
const EXIF: &[u8] = b"Exif\0\0";

/// Reads the header, which must be whole up to the first scan; what follows may be missing.
pub fn read(bytes: &[u8]) -> Result<Header, Reason> {
    let mut frame = None;
    let mut has_scan = false;
    let mut block: Vec<u8> = Vec::new();
    let mut at = 2;
    while let (Some(&prefix), Some(&marker)) = (bytes.get(at), bytes.get(at + 1)) {
        if prefix != 0xFF {
            // Decoders pass over what is no marker.
            at += 1;
            continue;
        }
        match marker {
            0xFF => at += 1,
            0x00 => at += 2,
            0x01 | 0xD0..=0xD8 => at += 2,
            START_OF_SCAN => {
                has_scan = true;
                break;
            }
            END_OF_IMAGE => break,
            _ => {
                let Some(size) = be16(bytes, at + 2) else {
                    break;
                };
                let end = at + 2 + usize::from(size.max(2));
                let segment = bytes.get(at + 4..end.min(bytes.len())).unwrap_or_default();
                match marker {
                    APPLICATION_1 => {
                        if let Some(part) = segment.strip_prefix(EXIF) {
                            block.extend_from_slice(part);
                        }
                    }
                    0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                        frame = frame.or(Frame::read(marker, segment));
                    }
                    _ => {}
                }
                at = end;
            }
        }
    }
    let Some(frame) = frame.filter(|_| has_scan) else {
        let is_over = bytes.get(at + 1) == Some(&END_OF_IMAGE);
        return Err(if is_over {
            Reason::Undecodable
        } else {
            Reason::Truncated
        });
    };
    let samples = u64::from(frame.components);
    // Planes and output, and coefficients of 16 bits if all have to be kept until the last scan.
    let coefficients = if frame.is_progressive { 2 * samples } else { 0 };
    let mut header = Header::new(
        Format::Jpeg,
        u32::from(frame.width),
        u32::from(frame.height),
        samples + 4 + coefficients,
    );
    header.exif = exif::parse(&block);
    header.quality = luminance_table(bytes).map(|table| quality(&table));
    (header.passes, header.end) = scans(bytes, at);
    Ok(header)
}

/// How many scans a picture has from `at` on, where the first one's marker is, and where its own
/// end marker ends. What is behind that (another file, another picture) may hold any bytes.
fn scans(bytes: &[u8], mut at: usize) -> (u64, Option<usize>) {
    let mut count = 0;
    while let Some(offset) = bytes.get(at..).and_then(|rest| memchr::memchr(0xFF, rest)) {
        at += offset;
        match bytes.get(at + 1) {
            None => break,
            Some(0xFF) => at += 1,
            // A byte of the picture, a restart, or nothing with a length.
            Some(0x00 | 0x01 | 0xD0..=0xD8) => at += 2,
            Some(&END_OF_IMAGE) => return (count, Some(at + 2)),
            Some(&marker) => {
                count += u64::from(marker == START_OF_SCAN);
                let size = be16(bytes, at + 2).unwrap_or_default();
                at += 2 + usize::from(size.max(2));
            }
        }
    }
    (count, None)
}

struct Frame {
    width: u16,
    height: u16,
    components: u8,
    is_progressive: bool,
}

impl Frame {
    fn read(marker: u8, segment: &[u8]) -> Option<Self> {
        Some(Self {
            height: be16(segment, 1)?,
            width: be16(segment, 3)?,
            components: *segment.get(5)?,
            is_progressive: matches!(marker & 3, 2),
        })
    }
}

/// The last table 0 before the first scan. Where something else than a marker stands between
/// segments, no table is trusted.
fn luminance_table(bytes: &[u8]) -> Option<[u16; 64]> {
    let mut table = None;
    let mut at = 2;
    while at + 4 <= bytes.len() {
        if bytes[at] != 0xFF {
            return None;
        }
        match bytes[at + 1] {
            0xFF => at += 1,
            0x01 | 0xD0..=0xD8 => at += 2,
            START_OF_SCAN | END_OF_IMAGE => break,
            marker => {
                let end = at + 2 + usize::from(be16(bytes, at + 2)?);
                if marker == QUANTISATION_TABLES {
                    let segment = bytes.get(at + 4..end.min(bytes.len()));
                    table = segment.and_then(last_luminance_table).or(table);
                }
                at = end;
            }
        }
    }
    table
}

/// The last table 0 of a segment, in zigzag order.
fn last_luminance_table(segment: &[u8]) -> Option<[u16; 64]> {
    let mut last = None;
    let mut rest = segment;
    while let Some((head, body)) = rest.split_first() {
        let is_wide = head >> 4 != 0;
        let Some((table, after)) = body.split_at_checked(if is_wide { 128 } else { 64 }) else {
            break;
        };
        if head & 15 == 0 {
            last = Some(std::array::from_fn(|at| {
                if is_wide {
                    u16::from_be_bytes([table[2 * at], table[2 * at + 1]])
                } else {
                    u16::from(table[at])
                }
            }));
        }
        rest = after;
    }
    last
}
