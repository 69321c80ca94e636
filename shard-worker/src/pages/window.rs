//! Snappy and LZ4 blocks decompressed as they stream by.
//!
//! Both are runs of literal bytes and copies of what came before. Writers copy from no further
//! back than 64 KiB (LZ4 cannot, Snappy's compressors do not), so that much is remembered.

use std::io::{self, BufReader, Read};

use crate::thrift::malformed;

/// How far back a copy may reach.
const REACH: usize = 1 << 16;
/// Bytes after which what is beyond reach is forgotten.
const SPAN: usize = 4 * REACH;

/// What comes next.
pub enum Step {
    /// So many bytes of the input.
    Literal(usize),
    /// So many bytes of the output, from so far back.
    Copy {
        /// Bytes.
        length: usize,
        /// Distance.
        back: usize,
    },
    /// The end.
    End,
}

/// How a format spells its steps.
pub trait Steps {
    /// Reads the next step.
    fn next(&mut self, source: &mut impl Read) -> io::Result<Step>;
}

/// A reader of decompressed bytes.
pub struct Windowed<R: Read, S> {
    source: BufReader<R>,
    steps: S,
    window: Vec<u8>,
    /// What was handed out of the window.
    given: usize,
    literal: usize,
    copy: usize,
    back: usize,
    is_done: bool,
}

impl<R: Read, S: Steps> Windowed<R, S> {
    fn new(source: BufReader<R>, steps: S) -> Self {
        Self {
            source,
            steps,
            window: Vec::with_capacity(SPAN),
            given: 0,
            literal: 0,
            copy: 0,
            back: 0,
            is_done: false,
        }
    }

    /// Puts more bytes into the window, which has been handed out as a whole.
    fn advance(&mut self) -> io::Result<()> {
        if self.window.len() > SPAN - REACH {
            self.window.drain(..self.window.len() - REACH);
        }
        self.given = self.window.len();
        while self.window.len() < SPAN && !self.is_done {
            let room = SPAN - self.window.len();
            if self.literal > 0 {
                let count = self.literal.min(room);
                let start = self.window.len();
                self.window.resize(start + count, 0);
                self.source.read_exact(&mut self.window[start..])?;
                self.literal -= count;
            } else if self.copy > 0 {
                let start = self.window.len() - self.back;
                // A copy may reach into itself, and repeats then.
                let count = self.copy.min(room).min(self.back);
                self.window.extend_from_within(start..start + count);
                self.copy -= count;
            } else {
                match self.steps.next(&mut self.source)? {
                    Step::Literal(length) => self.literal = length,
                    Step::Copy { length, back } => {
                        if back == 0 || back > self.window.len() {
                            return Err(malformed("a copy from before the start of a page"));
                        }
                        if back > REACH {
                            return Err(malformed(
                                "a copy from too far back; write the column uncompressed, or with zstd",
                            ));
                        }
                        (self.copy, self.back) = (length, back);
                    }
                    Step::End => self.is_done = true,
                }
            }
        }
        Ok(())
    }
}

impl<R: Read, S: Steps> Read for Windowed<R, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.window.len() && !buffer.is_empty() {
            self.advance()?;
        }
        let ready = &self.window[self.given..];
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.given += count;
        Ok(count)
    }
}

/// Steps of Snappy.
pub struct Snappy {
    /// Bytes still to come, of which the block begins by telling.
    left: usize,
}

impl<R: Read> Windowed<R, Snappy> {
    /// Opens a raw block.
    pub fn snappy(source: R) -> io::Result<Self> {
        let mut source = BufReader::new(source);
        let mut left = 0;
        for shift in (0..35).step_by(7) {
            let byte = byte(&mut source)?;
            left |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(Self::new(source, Snappy { left }));
            }
        }
        Err(malformed("a Snappy block without a length"))
    }
}

impl Steps for Snappy {
    fn next(&mut self, source: &mut impl Read) -> io::Result<Step> {
        if self.left == 0 {
            return Ok(Step::End);
        }
        let tag = byte(source)?;
        let high = usize::from(tag >> 2);
        let (length, back) = match tag & 3 {
            0 if high < 60 => (high + 1, None),
            0 => (little_endian(source, high - 59)? + 1, None),
            1 => {
                let low = usize::from(byte(source)?);
                (4 + (high & 7), Some((high >> 3) << 8 | low))
            }
            2 => (high + 1, Some(little_endian(source, 2)?)),
            _ => (high + 1, Some(little_endian(source, 4)?)),
        };
        self.left = self
            .left
            .checked_sub(length)
            .ok_or_else(|| malformed("a Snappy block longer than it says"))?;
        Ok(match back {
            None => Step::Literal(length),
            Some(back) => Step::Copy { length, back },
        })
    }
}

/// Steps of LZ4: a token stands for a literal, and for the copy that follows it.
pub struct Lz4 {
    copy: Option<usize>,
}

impl<R: Read> Windowed<R, Lz4> {
    /// Opens a raw block.
    pub fn lz4(source: R) -> Self {
        Self::new(BufReader::new(source), Lz4 { copy: None })
    }
}

impl Steps for Lz4 {
    fn next(&mut self, source: &mut impl Read) -> io::Result<Step> {
        if let Some(short) = self.copy.take() {
            // The last literal of a block has no copy.
            let mut first = [0];
            if source.read(&mut first)? == 0 {
                return Ok(Step::End);
            }
            let back = usize::from(first[0]) | usize::from(byte(source)?) << 8;
            let length = 4 + longer(source, short)?;
            return Ok(Step::Copy { length, back });
        }
        let mut token = [0];
        if source.read(&mut token)? == 0 {
            return Ok(Step::End);
        }
        self.copy = Some(usize::from(token[0] & 15));
        Ok(Step::Literal(longer(source, usize::from(token[0] >> 4))?))
    }
}

/// A length of LZ4: 15 goes on in the bytes that follow.
fn longer(source: &mut impl Read, short: usize) -> io::Result<usize> {
    let mut length = short;
    if short == 15 {
        loop {
            let more = byte(source)?;
            length += usize::from(more);
            if more < 255 {
                break;
            }
        }
    }
    Ok(length)
}

fn byte(source: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    source.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn little_endian(source: &mut impl Read, bytes: usize) -> io::Result<usize> {
    let mut whole = [0; 8];
    source.read_exact(&mut whole[..bytes])?;
    Ok(u64::from_le_bytes(whole) as usize)
}
