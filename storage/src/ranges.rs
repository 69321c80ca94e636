//! Which bytes to fetch together, by what it costs.
//!
//! Reading over a gap between two ranges costs the gap's bytes; a request of its own costs
//! its latency. At 90 MB/s a connection and 40 ms a request the two are even at 3.6 MB, but
//! requests run side by side while bytes share the network card, so a gap is read over only
//! up to [`LARGEST_GAP`] and only if it is small beside what is wanted around it: never more
//! than [`GAP_FACTOR`] times the two neighbours, or [`FREE_GAP`] where that is more (a
//! millisecond and a half of a connection). Two small columns with a megabyte of image bytes
//! between them are two requests.
//!
//! Why not up to 3.6 MB: what is read over is decrypted as well, and held until the shard is
//! done, so that fewer shards share a pass over an index. At 5,500 GETs a second and prefix, a
//! GET more for each of 300,000 shards is a minute; 3 MB more for each are a terabyte. So a shard
//! takes a request for each stretch of wanted columns between images: one a row group where
//! images are its first column, and one more where wanted columns lie before them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// No larger gap is read over.
pub const LARGEST_GAP: u64 = 1 << 20;

/// A gap of this size is read over whatever is around it.
pub const FREE_GAP: u64 = 128 << 10;

/// A gap may have this many times the bytes of the two ranges around it.
pub const GAP_FACTOR: u64 = 2;

/// Larger fetches are split into parts of this size at most, and of half of it at least.
pub const LARGEST_PART: u64 = 16 << 20;

/// What to fetch for a list of ranges, and how to cut what was asked for out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    wanted: Vec<Range<u64>>,
    fetches: Vec<Range<u64>>,
}

impl Plan {
    /// Plans for ranges in any order; they may overlap or be empty.
    pub fn of(wanted: &[Range<u64>]) -> Self {
        let mut sorted: Vec<Range<u64>> = wanted
            .iter()
            .filter(|range| range.start < range.end)
            .cloned()
            .collect();
        sorted.sort_unstable_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        let mut last_wanted = 0;
        for range in sorted {
            let length = range.end - range.start;
            match joined.last_mut() {
                Some(previous) if is_worth_joining(previous, last_wanted, &range) => {
                    previous.end = previous.end.max(range.end);
                }
                _ => joined.push(range),
            }
            last_wanted = length;
        }
        let fetches = joined.into_iter().flat_map(split).collect();
        Self {
            wanted: wanted.to_vec(),
            fetches,
        }
    }

    /// The ranges to fetch: ascending, apart or adjacent, none empty.
    pub fn fetches(&self) -> &[Range<u64>] {
        &self.fetches
    }

    /// Cuts the wanted ranges, in the order asked for, out of the bytes of all fetches.
    ///
    /// # Panics
    /// If `fetched` is not what [`Plan::fetches`] asks for.
    pub fn cut(&self, fetched: Vec<Bytes>) -> Vec<Bytes> {
        assert_eq!(fetched.len(), self.fetches.len(), "one piece a fetch");
        self.wanted
            .iter()
            .map(|range| self.cut_one(range, &fetched))
            .collect()
    }

    fn cut_one(&self, range: &Range<u64>, fetched: &[Bytes]) -> Bytes {
        if range.start >= range.end {
            return Bytes::new();
        }
        let first = self
            .fetches
            .partition_point(|fetch| fetch.end <= range.start);
        let fetch = &self.fetches[first];
        let slice = |index: usize| {
            let fetch = &self.fetches[index];
            let start = range.start.max(fetch.start) - fetch.start;
            let end = range.end.min(fetch.end) - fetch.start;
            fetched[index].slice(start as usize..end as usize)
        };
        if range.end <= fetch.end {
            return slice(first);
        }
        let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
        let mut index = first;
        while whole.len() < whole.capacity() && index < self.fetches.len() {
            if self.fetches[index].start >= range.end {
                break;
            }
            whole.extend_from_slice(&slice(index));
            index += 1;
        }
        whole.freeze()
    }
}

/// `last_wanted` is the length of the range that `previous` ends with.
fn is_worth_joining(previous: &Range<u64>, last_wanted: u64, next: &Range<u64>) -> bool {
    let gap = next.start.saturating_sub(previous.end);
    let around = last_wanted.saturating_add(next.end - next.start);
    let fair = around.saturating_mul(GAP_FACTOR).max(FREE_GAP);
    gap <= fair.min(LARGEST_GAP)
}

fn split(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let length = range.end - range.start;
    let parts = length.div_ceil(LARGEST_PART).max(1);
    let part = length.div_ceil(parts);
    (0..parts).map(move |index| {
        let start = range.start + index * part;
        start..(start + part).min(range.end)
    })
}

/// Checks that a range lies within an object of `size` bytes.
pub(crate) fn check_within(range: &Range<u64>, size: u64) -> Result<(), String> {
    if range.start > range.end || range.end > size {
        return Err(format!(
            "bytes {}..{} are asked for, but it has {size}",
            range.start, range.end
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn image_bytes_between_small_columns_are_never_read() {
        let key_column = 1_000..21_000;
        let caption_column = 921_000..951_000;
        let plan = Plan::of(&[key_column.clone(), caption_column.clone()]);
        assert_eq!(plan.fetches(), [key_column, caption_column]);
    }

    #[test]
    fn small_gaps_are_read_over() {
        let plan = Plan::of(&[200_000..210_000, 0..100_000]);
        assert_eq!(plan.fetches().to_vec(), vec![0..210_000]);
    }

    #[test]
    fn large_ranges_are_split_evenly() {
        let size = 40 << 20;
        let plan = Plan::of(std::slice::from_ref(&(0..size)));
        assert_eq!(plan.fetches().len(), 3);
        for fetch in plan.fetches() {
            let length = fetch.end - fetch.start;
            assert!((LARGEST_PART / 2..=LARGEST_PART).contains(&length));
        }
    }

    fn content(range: &Range<u64>) -> Bytes {
        range.clone().map(|at| (at * 31 % 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn every_wanted_byte_is_fetched_and_returned_in_order(
            wanted in prop::collection::vec((0_u64..3_000_000, 0_u64..50_000), 0..12)
        ) {
            let wanted: Vec<Range<u64>> =
                wanted.into_iter().map(|(start, length)| start..start + length).collect();
            let plan = Plan::of(&wanted);
            for pair in plan.fetches().windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            let fetched = plan.fetches().iter().map(content).collect();
            let cut = plan.cut(fetched);
            prop_assert_eq!(cut.len(), wanted.len());
            for (range, bytes) in wanted.iter().zip(&cut) {
                prop_assert_eq!(bytes, &content(range));
            }
        }

        #[test]
        fn no_gap_is_larger_than_it_is_worth(
            wanted in prop::collection::vec((0_u64..1 << 40, 1_u64..1 << 30), 1..20)
        ) {
            let wanted: Vec<Range<u64>> =
                wanted.into_iter().map(|(start, length)| start..start + length).collect();
            let fetched: u64 = Plan::of(&wanted).fetches().iter().map(|range| range.end - range.start).sum();
            let asked: u64 = wanted.iter().map(|range| range.end - range.start).sum();
            prop_assert!(fetched <= asked + LARGEST_GAP * wanted.len() as u64);
        }
    }
}
