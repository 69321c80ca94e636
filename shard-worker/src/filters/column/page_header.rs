//! The header of a Parquet page, in Thrift's compact protocol.
//!
//! The Parquet library reads a page as a whole; a page of images may be larger than memory, so
//! pages are read here as they stream by.

use std::io::{self, Read};

use parquet::basic::Encoding;

/// A page to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHeader {
    /// Bytes of the page in the file, after the header.
    pub compressed: usize,
    /// Bytes of the page once it is decompressed.
    pub uncompressed: usize,
    /// What the page holds.
    pub kind: PageKind,
}

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Values that data pages refer to.
    Dictionary {
        /// How many.
        values: usize,
    },
    /// Rows: levels, then values, compressed together.
    Data {
        /// Levels.
        levels: usize,
        /// How values are written.
        encoding: Encoding,
        /// How definition levels are written.
        definition: Encoding,
    },
    /// Rows: levels as they are, then values, compressed alone or not at all.
    DataV2 {
        /// Levels.
        levels: usize,
        /// How values are written.
        encoding: Encoding,
        /// Bytes of repetition levels.
        repetition_bytes: usize,
        /// Bytes of definition levels.
        definition_bytes: usize,
        /// Whether the values are compressed.
        is_compressed: bool,
    },
    /// Something else, to be passed over.
    Other,
}

/// A longer header is none: statistics of a page may hold two values.
const LONGEST: usize = 1 << 25;
/// Structs within structs; a page header has three.
const DEEPEST: u32 = 8;

impl PageHeader {
    /// Reads a header.
    pub fn read(source: &mut impl Read) -> io::Result<Self> {
        let mut thrift = Thrift {
            source,
            left: LONGEST,
        };
        let mut header = Fields::default();
        let mut data = None;
        let mut dictionary = None;
        let mut data_v2 = None;
        let mut field = 0;
        while let Some(kind) = thrift.field(&mut field)? {
            match (field, kind) {
                (5, STRUCT) => data = Some(thrift.fields()?),
                (7, STRUCT) => dictionary = Some(thrift.fields()?),
                (8, STRUCT) => data_v2 = Some(thrift.fields()?),
                (1..=8, BYTE | I16 | I32 | I64) => header.set(field, thrift.integer()?),
                _ => thrift.skip(kind, 0)?,
            }
        }
        let kind = match (header.get(1)?, data, dictionary, data_v2) {
            (0, Some(data), ..) => PageKind::Data {
                levels: size(data.get(1)?)?,
                encoding: encoding(data.get(2)?)?,
                definition: encoding(data.get(3)?)?,
            },
            (2, _, Some(dictionary), _) => match encoding(dictionary.get(2)?)? {
                Encoding::PLAIN | Encoding::RLE_DICTIONARY => PageKind::Dictionary {
                    values: size(dictionary.get(1)?)?,
                },
                #[allow(deprecated)] // What old writers call a plain dictionary.
                Encoding::PLAIN_DICTIONARY => PageKind::Dictionary {
                    values: size(dictionary.get(1)?)?,
                },
                other => return Err(malformed(&format!("a dictionary written as {other}"))),
            },
            (3, _, _, Some(data)) => PageKind::DataV2 {
                levels: size(data.get(1)?)?,
                encoding: encoding(data.get(4)?)?,
                definition_bytes: size(data.get(5)?)?,
                repetition_bytes: size(data.get(6)?)?,
                is_compressed: data.values[7] != Some(0),
            },
            (0 | 2 | 3, ..) => return Err(malformed("a page header without its details")),
            _ => PageKind::Other,
        };
        Ok(Self {
            uncompressed: size(header.get(2)?)?,
            compressed: size(header.get(3)?)?,
            kind,
        })
    }
}

/// An error about bytes that contradict the format.
pub fn malformed(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

fn size(value: i64) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| malformed("a negative size in a page header"))
}

fn encoding(value: i64) -> io::Result<Encoding> {
    #[allow(deprecated)] // Old files have them.
    let known = match value {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return Err(malformed(&format!("encoding {value} is not known"))),
    };
    Ok(known)
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// Integers and booleans of a struct, by the number of the field.
#[derive(Default)]
struct Fields {
    values: [Option<i64>; 9],
}

impl Fields {
    fn set(&mut self, field: i64, value: i64) {
        if let Some(place) = usize::try_from(field)
            .ok()
            .and_then(|at| self.values.get_mut(at))
        {
            *place = Some(value);
        }
    }

    fn get(&self, field: usize) -> io::Result<i64> {
        self.values[field].ok_or_else(|| malformed("a page header that lacks a field"))
    }
}

struct Thrift<'a, R> {
    source: &'a mut R,
    left: usize,
}

impl<R: Read> Thrift<'_, R> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| malformed("a page header without an end"))?;
        self.source.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number without an end in a page header"))
    }

    fn integer(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The kind of the next field, whose number goes to `field`; `None` at the end.
    fn field(&mut self, field: &mut i64) -> io::Result<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        match i64::from(head >> 4) {
            0 => *field = self.integer()?,
            step => *field = field.saturating_add(step),
        }
        Ok(Some(head & 15))
    }

    fn fields(&mut self) -> io::Result<Fields> {
        let mut fields = Fields::default();
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match kind {
                TRUE => fields.set(field, 1),
                FALSE => fields.set(field, 0),
                BYTE | I16 | I32 | I64 => {
                    let value = self.integer()?;
                    fields.set(field, value);
                }
                _ => self.skip(kind, 0)?,
            }
        }
        Ok(fields)
    }

    fn skip(&mut self, kind: u8, depth: u32) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(malformed("a page header that is too deep"));
        }
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.pass(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let length = self.varint()?;
                self.pass(length)
            }
            LIST | SET => {
                let head = self.byte()?;
                let count = match u64::from(head >> 4) {
                    15 => self.varint()?,
                    count => count,
                };
                for _ in 0..count {
                    match head & 15 {
                        TRUE | FALSE => self.pass(1)?,
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
                Ok(())
            }
            STRUCT => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(malformed("a page header with a field of an unknown kind")),
        }
    }

    fn pass(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.byte()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_writers_write() {
        // A dictionary of 74 values, as a common writer puts it, with a checksum.
        let bytes = [
            0x15, 0x04, 0x15, 0x80, 0x10, 0x15, 0x86, 0x10, 0x15, 0x02, 0x3c, 0x15, 0x94, 0x01,
            0x15, 0x00, 0x12, 0x00, 0x00,
        ];
        let header = PageHeader::read(&mut &bytes[..]).unwrap();
        assert_eq!((header.uncompressed, header.compressed), (1024, 1027));
        assert_eq!(header.kind, PageKind::Dictionary { values: 74 });
        for length in 0..bytes.len() {
            assert!(
                PageHeader::read(&mut &bytes[..length]).is_err(),
                "cut at {length}"
            );
        }
    }

    #[test]
    fn endless_headers_end() {
        let endless = io::repeat(0xff);
        assert!(PageHeader::read(&mut endless.take(u64::MAX)).is_err());
        let deep = io::repeat(0x1c);
        assert!(PageHeader::read(&mut deep.take(u64::MAX)).is_err());
    }
}
