//! Thrift's compact protocol, as far as Parquet's headers and footers need it: fields are read or
//! passed over, one by one, with bounds on how many bytes and how deep.

use std::io::{self, Read};

/// A field that is true.
pub const TRUE: u8 = 1;
/// A field that is false.
pub const FALSE: u8 = 2;
/// A byte.
pub const BYTE: u8 = 3;
/// An integer.
pub const I16: u8 = 4;
/// An integer.
pub const I32: u8 = 5;
/// An integer.
pub const I64: u8 = 6;
/// A number.
pub const DOUBLE: u8 = 7;
/// Bytes.
pub const BINARY: u8 = 8;
/// A list.
pub const LIST: u8 = 9;
/// A set.
pub const SET: u8 = 10;
/// A struct.
pub const STRUCT: u8 = 12;

/// Structs within structs; a footer has six.
const DEEPEST: u32 = 12;

/// An error about bytes that contradict the format.
pub fn malformed(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

/// A reader of structs.
pub struct Thrift<'a, R> {
    source: &'a mut R,
    left: usize,
}

impl<'a, R: Read> Thrift<'a, R> {
    /// Reads at most `limit` bytes from `source`.
    pub fn new(source: &'a mut R, limit: usize) -> Self {
        Self {
            source,
            left: limit,
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| malformed("a header without an end"))?;
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
        Err(malformed("a number without an end in a header"))
    }

    /// The value of an integer field.
    pub fn integer(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The kind of the next field, whose number goes to `field`; `None` at the end.
    pub fn field(&mut self, field: &mut i64) -> io::Result<Option<u8>> {
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

    /// Kind and number of the elements of a list that comes next.
    pub fn list(&mut self) -> io::Result<(u8, u64)> {
        let head = self.byte()?;
        let count = match u64::from(head >> 4) {
            15 => self.varint()?,
            count => count,
        };
        Ok((head & 15, count))
    }

    /// Passes over the value of a field.
    pub fn skip(&mut self, kind: u8) -> io::Result<()> {
        self.skip_within(kind, 0)
    }

    fn skip_within(&mut self, kind: u8, depth: u32) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(malformed("a header that is too deep"));
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
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    match kind {
                        TRUE | FALSE => self.pass(1)?,
                        kind => self.skip_within(kind, depth + 1)?,
                    }
                }
                Ok(())
            }
            STRUCT => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip_within(kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(malformed("a header with a field of an unknown kind")),
        }
    }

    fn pass(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.byte()?;
        }
        Ok(())
    }
}
