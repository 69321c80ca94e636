//! Encoded bytes that are handed out only while there is time.
//!
//! The estimate from the header should refuse what takes too long; this stops a decoder that
//! goes over its input again and again all the same.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::time::Duration;

use crate::workers::thread_cpu_time;

/// Bytes handed out between two looks at the clock.
const STEP: usize = 64 << 10;

/// A reader that ends with an error when the CPU time of its thread is used up.
pub struct Timed<'a> {
    bytes: &'a [u8],
    position: usize,
    until: Duration,
    expired: &'a Cell<bool>,
}

impl<'a> Timed<'a> {
    /// From the start, for `time`; says in `expired` if that was too little.
    pub fn new(bytes: &'a [u8], time: Duration, expired: &'a Cell<bool>) -> Self {
        Self {
            bytes,
            position: 0,
            until: thread_cpu_time() + time,
            expired,
        }
    }
}

impl BufRead for Timed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if !rest.is_empty() && thread_cpu_time() > self.until {
            self.expired.set(true);
            return Err(io::Error::other("decoding takes too long"));
        }
        Ok(&rest[..rest.len().min(STEP)])
    }

    fn consume(&mut self, count: usize) {
        self.position += count;
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl Seek for Timed<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => (self.bytes.len() as u64).checked_add_signed(by),
            SeekFrom::Current(by) => (self.position as u64).checked_add_signed(by),
        };
        let position = position.ok_or(io::ErrorKind::InvalidInput)?;
        self.position = usize::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_in_time_and_nothing_after() {
        let expired = Cell::new(false);
        let bytes = vec![7; 3 * STEP + 1];
        let mut read = Vec::new();
        Timed::new(&bytes, Duration::from_secs(3600), &expired)
            .read_to_end(&mut read)
            .unwrap();
        assert_eq!(read, bytes);
        assert!(!expired.get());
        let mut late = Timed::new(&bytes, Duration::ZERO, &expired);
        while thread_cpu_time() <= late.until {}
        assert!(late.read(&mut [0]).is_err());
        assert!(expired.get());
    }
}
