//! The header of a Parquet page, in Thrift's compact protocol.
//!
//! The Parquet library reads a page as a whole; a page of images or long texts may be larger than
//! memory, so pages are read here as they stream by.

use std::io::{self, Read};

use parquet::basic::Encoding;

use crate::thrift::{BYTE, FALSE, I16, I32, I64, STRUCT, TRUE, Thrift, malformed};

/// A page to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHeader {
    /// Bytes of the page in the file, after the header.
    pub compressed: usize,
    /// Bytes of the page once it is decompressed.
    pub uncompressed: usize,
    /// Checksum of the page in the file.
    pub crc: Option<u32>,
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
        /// How repetition levels are written.
        repetition: Encoding,
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

impl PageHeader {
    /// Reads a header.
    pub fn read(source: &mut impl Read) -> io::Result<Self> {
        let mut thrift = Thrift::new(source, LONGEST);
        let mut header = Fields::default();
        let mut data = None;
        let mut dictionary = None;
        let mut data_v2 = None;
        let mut field = 0;
        while let Some(kind) = thrift.field(&mut field)? {
            match (field, kind) {
                (5, STRUCT) => data = Some(fields(&mut thrift)?),
                (7, STRUCT) => dictionary = Some(fields(&mut thrift)?),
                (8, STRUCT) => data_v2 = Some(fields(&mut thrift)?),
                (1..=8, BYTE | I16 | I32 | I64) => header.set(field, thrift.integer()?),
                _ => thrift.skip(kind)?,
            }
        }
        let kind = match (header.get(1)?, data, dictionary, data_v2) {
            (0, Some(data), ..) => PageKind::Data {
                levels: size(data.get(1)?)?,
                encoding: encoding(data.get(2)?)?,
                definition: encoding(data.get(3)?)?,
                repetition: encoding(data.get(4)?)?,
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
            crc: header.values[4].map(|crc| crc as u32),
            kind,
        })
    }
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

fn fields<R: Read>(thrift: &mut Thrift<'_, R>) -> io::Result<Fields> {
    let mut fields = Fields::default();
    let mut field = 0;
    while let Some(kind) = thrift.field(&mut field)? {
        match kind {
            TRUE => fields.set(field, 1),
            FALSE => fields.set(field, 0),
            BYTE | I16 | I32 | I64 => fields.set(field, thrift.integer()?),
            _ => thrift.skip(kind)?,
        }
    }
    Ok(fields)
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
