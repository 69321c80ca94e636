//! Small numbers in runs, repeated or packed into bits: definition levels, places in a
//! dictionary. And numbers as differences, packed into bits: lengths.

use std::io::{self, Read};

use crate::thrift::malformed;

/// Appends `count` numbers of `width` bits to `numbers`.
pub fn runs(bytes: &[u8], width: u32, count: usize, numbers: &mut Vec<u32>) -> io::Result<()> {
    if width > 32 {
        return Err(malformed("numbers of more than 32 bits"));
    }
    let until = numbers.len() + count;
    let mut rest = bytes;
    while numbers.len() < until {
        let head = varint(&mut rest)?;
        let missing = until - numbers.len();
        if head & 1 == 0 {
            let value = take(&mut rest, width.div_ceil(8) as usize)?;
            let value = value
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u32::from(*byte));
            let length = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if length == 0 {
                return Err(malformed("a run of no values"));
            }
            numbers.resize(numbers.len() + length.min(missing), value);
        } else {
            let groups = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if groups == 0 {
                return Err(malformed("a run of no values"));
            }
            // The last run may be padded, or cut off after the last value.
            let wanted = missing.min(groups.saturating_mul(8));
            let size = (wanted * width as usize).div_ceil(8);
            let packed = take(&mut rest, size)?;
            let mut bits = Bits::new(packed);
            numbers.extend((0..wanted).map(|_| bits.take(width) as u32));
            let padding = groups.saturating_mul(width as usize).saturating_sub(size);
            rest = rest.get(padding..).unwrap_or_default();
        }
    }
    Ok(())
}

/// Bits of levels of which the highest is `level`.
pub fn bits_of(level: i16) -> u32 {
    i16::BITS - level.leading_zeros()
}

/// Writes numbers of `width` bits as runs.
pub fn put_runs(numbers: &[u32], width: u32, bytes: &mut Vec<u8>) {
    for run in numbers.chunk_by(|left, right| left == right) {
        let mut head = (run.len() as u64) << 1;
        while head >= 0x80 {
            bytes.push(head as u8 | 0x80);
            head >>= 7;
        }
        bytes.push(head as u8);
        let value = run[0].to_le_bytes();
        bytes.extend(&value[..width.div_ceil(8) as usize]);
    }
}

/// Reads `count` numbers written as differences, and not a byte more; returns them and how many
/// bytes they took.
pub fn differences(source: &mut impl Read, count: usize) -> io::Result<(Vec<i64>, usize)> {
    let mut source = Counted { source, bytes: 0 };
    let block = source.varint()? as usize;
    let parts = source.varint()? as usize;
    let total = source.varint()? as usize;
    let mut value = signed(source.varint()?);
    if total != count
        || parts == 0
        || parts > block
        || !block.is_multiple_of(parts)
        || block > 1 << 20
    {
        return Err(malformed(
            "a header of differences that contradicts the page",
        ));
    }
    let size = block / parts;
    let mut numbers = Vec::new();
    let mut widths = vec![0; parts];
    let mut packed = Vec::new();
    if count > 0 {
        numbers.push(value);
    }
    while numbers.len() < count {
        let least = signed(source.varint()?);
        source.read_exact(&mut widths)?;
        for width in &widths {
            if numbers.len() >= count {
                break;
            }
            if *width > 64 {
                return Err(malformed("differences of more than 64 bits"));
            }
            packed.resize((size * usize::from(*width)).div_ceil(8), 0);
            source.read_exact(&mut packed)?;
            let mut bits = Bits::new(&packed);
            for _ in 0..size.min(count - numbers.len()) {
                let difference = bits.take(u32::from(*width)) as i64;
                value = value.wrapping_add(least).wrapping_add(difference);
                numbers.push(value);
            }
        }
    }
    Ok((numbers, source.bytes))
}

struct Counted<'a, R> {
    source: &'a mut R,
    bytes: usize,
}

impl<R: Read> Counted<'_, R> {
    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes += buffer.len();
        self.source.read_exact(buffer)
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.read_exact(&mut byte)?;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number without an end"))
    }
}

fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn varint(bytes: &mut &[u8]) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("a number without an end"))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> io::Result<&'a [u8]> {
    let (taken, rest) = bytes
        .split_at_checked(count)
        .ok_or_else(|| malformed("a page that ends early"))?;
    *bytes = rest;
    Ok(taken)
}

/// Bits from the lowest of each byte upward.
struct Bits<'a> {
    bytes: std::slice::Iter<'a, u8>,
    buffer: u128,
    held: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
            buffer: 0,
            held: 0,
        }
    }

    /// The next `width` bits; zeros past the end.
    fn take(&mut self, width: u32) -> u64 {
        while self.held < width {
            self.buffer |= u128::from(*self.bytes.next().unwrap_or(&0)) << self.held;
            self.held += 8;
        }
        let value = self.buffer & ((1 << width) - 1);
        self.buffer >>= width;
        self.held -= width;
        value as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_repeat_and_pack() {
        let mut numbers = Vec::new();
        // Five threes, then 0 to 7 in three bits each.
        let bytes = [0x0a, 0x03, 0x03, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        runs(&bytes, 3, 13, &mut numbers).unwrap();
        assert_eq!(numbers, [3, 3, 3, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7]);
        numbers.clear();
        assert!(runs(&bytes, 3, 14, &mut numbers).is_err(), "one too many");
        assert!(
            runs(&[0, 0, 0], 1, 1, &mut Vec::new()).is_err(),
            "empty runs"
        );
    }

    #[test]
    fn differences_of_the_specification() {
        // 1 to 5: blocks of 128 in 4 parts, 5 values, first 1, least difference 1, no bits.
        let bytes = [0x80, 0x01, 0x04, 0x05, 0x02, 0x02, 0, 0, 0, 0];
        let of = |bytes: &[u8], count| differences(&mut &bytes[..], count);
        assert_eq!(of(&bytes, 5).unwrap(), (vec![1, 2, 3, 4, 5], 10));
        assert!(of(&bytes, 6).is_err());
        assert!(of(&bytes[..6], 5).is_err());
    }
}
