//! The Exif block: a small TIFF file with tags about the picture.

/// The tags that filters use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exif {
    /// Size of the block.
    pub bytes: usize,
    /// 0x0112, if 1..8.
    pub orientation: Option<i32>,
    /// 0x010F.
    pub make: Option<String>,
    /// 0x0110.
    pub model: Option<String>,
    /// 0x0131.
    pub software: Option<String>,
    /// 0x0132.
    pub datetime: Option<String>,
    /// 0x8827.
    pub iso: Option<i32>,
    /// 0x829A, seconds.
    pub exposure_time: Option<f64>,
    /// 0x829D.
    pub f_number: Option<f64>,
    /// 0x920A, millimetres.
    pub focal_length: Option<f64>,
    /// Whether 0x8825 is there.
    pub has_gps: bool,
}

const PREFIX: &[u8] = b"Exif\0\0";
const EXIF_DIRECTORY: u16 = 0x8769;
/// A longer text is no text.
const LONGEST_TEXT: usize = 1 << 16;

/// The tags of a block, with or without its prefix. What is malformed is left out.
pub fn parse(block: &[u8]) -> Exif {
    let block = block.strip_prefix(PREFIX).unwrap_or(block);
    let mut exif = Exif {
        bytes: block.len(),
        ..Exif::default()
    };
    let Some(tiff) = Tiff::open(block) else {
        return exif;
    };
    // Of a tag that comes twice, the last one counts.
    let first = |tag| tiff.last(tiff.first, tag);
    let orientation = first(0x0112).and_then(|entry| entry.integer());
    exif.orientation = orientation
        .filter(|value| (1..=8).contains(value))
        .map(|value| value as i32);
    let text = |tag| first(tag).and_then(|entry| entry.text());
    exif.make = text(0x010F);
    exif.model = text(0x0110);
    exif.software = text(0x0131);
    exif.datetime = text(0x0132);
    exif.has_gps = first(0x8825).is_some();
    let details = first(EXIF_DIRECTORY).and_then(|entry| entry.integer());
    if let Some(details) = details.and_then(|at| u32::try_from(at).ok()) {
        let iso = tiff.last(details, 0x8827).and_then(|entry| entry.integer());
        exif.iso = iso
            .filter(|iso| *iso >= 0)
            .and_then(|iso| iso.try_into().ok());
        let number = |tag| tiff.last(details, tag).and_then(|entry| entry.number());
        exif.exposure_time = number(0x829A);
        exif.f_number = number(0x829D);
        exif.focal_length = number(0x920A);
    }
    exif
}

/// The compression of a TIFF file's first picture: tag 0x0103. `None` for files of other kinds.
pub fn compression(file: &[u8]) -> Option<i64> {
    let tiff = Tiff::open(file)?;
    let entry = tiff.last(tiff.first, 0x0103);
    // Absent, it means none.
    entry.map_or(Some(1), |entry| entry.integer())
}

#[derive(Clone, Copy)]
struct Tiff<'a> {
    block: &'a [u8],
    is_little_endian: bool,
    first: u32,
}

/// The type of a tag's values.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bytes,
    Text,
    Unsigned(usize),
    Signed(usize),
    Rational,
    SignedRational,
    Float(usize),
}

impl Kind {
    fn new(code: u16) -> Option<Self> {
        Some(match code {
            1 | 7 => Self::Bytes,
            2 => Self::Text,
            3 => Self::Unsigned(2),
            4 | 13 => Self::Unsigned(4),
            5 => Self::Rational,
            6 => Self::Signed(1),
            8 => Self::Signed(2),
            9 => Self::Signed(4),
            10 => Self::SignedRational,
            11 => Self::Float(4),
            12 => Self::Float(8),
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Self::Bytes | Self::Text => 1,
            Self::Unsigned(size) | Self::Signed(size) | Self::Float(size) => size,
            Self::Rational | Self::SignedRational => 8,
        }
    }
}

struct Entry<'a> {
    tiff: Tiff<'a>,
    tag: u16,
    kind: Kind,
    values: &'a [u8],
}

impl<'a> Tiff<'a> {
    fn open(block: &'a [u8]) -> Option<Self> {
        let is_little_endian = match block.get(..4)? {
            b"II\x2a\0" => true,
            b"MM\0\x2a" => false,
            _ => return None,
        };
        let mut tiff = Self {
            block,
            is_little_endian,
            first: 0,
        };
        tiff.first = tiff.u32(block.get(4..8)?);
        Some(tiff)
    }

    fn unsigned(self, bytes: &[u8]) -> u64 {
        let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if self.is_little_endian {
            bytes.iter().rev().fold(0, shift)
        } else {
            bytes.iter().fold(0, shift)
        }
    }

    fn u16(self, bytes: &[u8]) -> u16 {
        self.unsigned(bytes) as u16
    }

    fn u32(self, bytes: &[u8]) -> u32 {
        self.unsigned(bytes) as u32
    }

    /// The well-formed entries of a directory, up to where the block ends.
    fn directory(self, at: u32) -> impl Iterator<Item = Entry<'a>> {
        let body = self.block.get(at as usize..).unwrap_or_default();
        let count = body.get(..2).map_or(0, |count| self.u16(count));
        let entries = body.get(2..).unwrap_or_default().chunks_exact(12);
        entries
            .take(usize::from(count))
            .filter_map(move |entry| self.entry(entry))
    }

    /// The last well-formed entry of a tag.
    fn last(self, directory: u32, tag: u16) -> Option<Entry<'a>> {
        self.directory(directory)
            .filter(|entry| entry.tag == tag)
            .last()
    }

    fn entry(self, entry: &'a [u8]) -> Option<Entry<'a>> {
        let kind = Kind::new(self.u16(&entry[2..4]))?;
        let count = self.u32(&entry[4..8]) as usize;
        let size = count.checked_mul(kind.size())?;
        let values = if size <= 4 {
            &entry[8..8 + size]
        } else {
            let at = self.u32(&entry[8..12]) as usize;
            self.block.get(at..at.checked_add(size)?)?
        };
        (count > 0).then_some(Entry {
            tiff: self,
            tag: self.u16(&entry[..2]),
            kind,
            values,
        })
    }
}

impl Entry<'_> {
    /// The first value, if it is an integer.
    fn integer(&self) -> Option<i64> {
        let value = self.tiff.unsigned(&self.values[..self.kind.size()]);
        match self.kind {
            Kind::Unsigned(_) => i64::try_from(value).ok(),
            Kind::Signed(size) => Some(sign_extended(value, size)),
            _ => None,
        }
    }

    /// The first value, if it is a finite number.
    fn number(&self) -> Option<f64> {
        let bytes = &self.values[..self.kind.size()];
        let number = match self.kind {
            Kind::Unsigned(_) | Kind::Signed(_) => self.integer()? as f64,
            Kind::Rational => {
                let [over, under] = [&bytes[..4], &bytes[4..]].map(|half| self.tiff.u32(half));
                f64::from(over) / f64::from(under)
            }
            Kind::SignedRational => {
                let [over, under] = [&bytes[..4], &bytes[4..]].map(|half| self.tiff.u32(half));
                f64::from(over as i32) / f64::from(under as i32)
            }
            Kind::Float(4) => f64::from(f32::from_bits(self.tiff.u32(bytes))),
            Kind::Float(_) => f64::from_bits(self.tiff.unsigned(bytes)),
            Kind::Bytes | Kind::Text => return None,
        };
        number.is_finite().then_some(number)
    }

    fn text(&self) -> Option<String> {
        if !matches!(self.kind, Kind::Bytes | Kind::Text) || self.values.len() > LONGEST_TEXT {
            return None;
        }
        let end = memchr::memchr(0, self.values).unwrap_or(self.values.len());
        let latin: String = self.values[..end]
            .iter()
            .map(|byte| char::from(*byte))
            .collect();
        // Separators of ASCII count as white space, too.
        let is_blank = |letter: char| letter.is_whitespace() || ('\x1c'..='\x1f').contains(&letter);
        let trimmed = latin.trim_matches(is_blank);
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }
}

fn sign_extended(value: u64, size: usize) -> i64 {
    let unused = 64 - 8 * size as u32;
    ((value << unused) as i64) >> unused
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little-endian block with one directory; values longer than four bytes follow it.
    fn block(entries: &[(u16, u16, u32, &[u8])]) -> Vec<u8> {
        let mut head = b"Exif\0\0II\x2a\0\x08\0\0\0".to_vec();
        let mut tail = Vec::new();
        let tail_at = 8 + 2 + 12 * entries.len() as u32 + 4;
        head.extend((entries.len() as u16).to_le_bytes());
        for (tag, kind, count, values) in entries {
            head.extend(tag.to_le_bytes());
            head.extend(kind.to_le_bytes());
            head.extend(count.to_le_bytes());
            let mut inline = [0; 4];
            if values.len() <= 4 {
                inline[..values.len()].copy_from_slice(values);
            } else {
                inline = (tail_at + tail.len() as u32).to_le_bytes();
                tail.extend_from_slice(values);
            }
            head.extend(inline);
        }
        head.extend([0; 4]);
        head.extend(tail);
        head
    }

    #[test]
    fn orientation_is_one_of_eight_or_nothing() {
        let of = |kind, count, values: &[u8]| {
            parse(&block(&[(0x0112, kind, count, values)])).orientation
        };
        for value in 1..=8 {
            assert_eq!(of(3, 1, &[value, 0]), Some(i32::from(value)));
        }
        assert_eq!(of(3, 1, &[0, 0]), None);
        assert_eq!(of(3, 1, &[9, 0]), None);
        assert_eq!(of(2, 2, b"6\0"), None, "a text");
        assert_eq!(of(5, 1, &[6, 0, 0, 0, 1, 0, 0, 0]), None, "a fraction");
        assert_eq!(
            of(3, 2, &[6, 0, 1, 0]),
            Some(6),
            "several values: the first"
        );
        assert_eq!(of(3, 0, &[6, 0]), None, "no value");
        assert_eq!(of(99, 1, &[6, 0]), None, "a type that nobody knows");
    }

    #[test]
    fn texts_are_latin_and_trimmed() {
        let of = |values: &[u8]| parse(&block(&[(0x010F, 2, values.len() as u32, values)])).make;
        assert_eq!(of(b" Caf\xe9 \0rest\0"), Some("Café".to_owned()));
        assert_eq!(of(b"  \0\0"), None);
        assert_eq!(of(b"no end"), Some("no end".to_owned()));
    }

    #[test]
    fn what_lies_outside_is_left_out() {
        let good = block(&[(0x0112, 3, 1, &[6, 0]), (0x010F, 2, 9, b"somebody\0")]);
        for length in 0..good.len() {
            let exif = parse(&good[..length]);
            assert!(exif.make.is_none(), "cut at {length}");
        }
        assert_eq!(parse(&good).make.as_deref(), Some("somebody"));
        let far = block(&[
            (0x010F, 2, u32::MAX, b"\xff\xff\xff\xff"),
            (0x0112, 3, 1, &[8, 0]),
        ]);
        assert_eq!(parse(&far).orientation, Some(8));
    }

    #[test]
    fn fractions_over_nothing_are_nothing() {
        let mut whole = block(&[(EXIF_DIRECTORY, 4, 1, &[26, 0, 0, 0])]);
        let mut directory = 3_u16.to_le_bytes().to_vec();
        let far = 26 + 2 + 36;
        for (tag, at) in [(0x829A_u16, far), (0x829D, far + 8), (0x8827, 400)] {
            directory.extend(tag.to_le_bytes());
            directory.extend(if tag == 0x8827 {
                [3, 0, 1, 0, 0, 0]
            } else {
                [5, 0, 1, 0, 0, 0]
            });
            directory.extend(u32::to_le_bytes(at));
        }
        for (over, under) in [(1_u32, 125_u32), (5, 0)] {
            directory.extend(over.to_le_bytes());
            directory.extend(under.to_le_bytes());
        }
        whole.extend(directory);
        let exif = parse(&whole);
        assert_eq!(exif.exposure_time, Some(1.0 / 125.0));
        assert_eq!(exif.f_number, None);
        assert_eq!(exif.iso, Some(400));
    }
}
