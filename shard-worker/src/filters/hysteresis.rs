//! Edges grow along the candidates that touch them, 64 pixels at a time.

const BITS: usize = 64;

/// A bit a pixel: which are candidates, and which of them are edges.
#[derive(Debug, Default)]
pub struct BitMaps {
    /// Words of a row.
    words: usize,
    rows: usize,
    candidates: Vec<u64>,
    edges: Vec<u64>,
    /// Words that have to be looked at (again), and which those are.
    waiting: Vec<u32>,
    is_waiting: Vec<u64>,
}

impl BitMaps {
    /// Prepares for an image of this size.
    pub fn start(&mut self, width: usize, height: usize) {
        self.words = width.div_ceil(BITS);
        self.rows = height;
        let all = self.words * height;
        self.candidates.resize(all, 0);
        self.edges.resize(all, 0);
        self.is_waiting.clear();
        self.is_waiting.resize(all.div_ceil(BITS), 0);
        self.waiting.clear();
    }

    /// The words of a row, to be filled: candidates, and edges among them.
    pub fn row_mut(&mut self, row: usize) -> (&mut [u64], &mut [u64]) {
        let range = row * self.words..(row + 1) * self.words;
        (&mut self.candidates[range.clone()], &mut self.edges[range])
    }

    /// Makes edges of all candidates that are connected to one; returns how many edges there
    /// are.
    pub fn connect(&mut self) -> u64 {
        for reached in 0..self.candidates.len() {
            self.grow(reached, reached);
            while let Some(word) = self.waiting.pop() {
                let word = word as usize;
                self.is_waiting[word / BITS] &= !(1 << (word % BITS));
                self.grow(word, reached);
            }
        }
        self.edges
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// Grows the edges in one word from all around it; words beside it that may now grow, too,
    /// have to wait for another turn, if the first turns have `reached` them.
    fn grow(&mut self, word: usize, reached: usize) {
        let candidates = self.candidates[word];
        let before = self.edges[word];
        if candidates == before {
            return;
        }
        let (row, column) = (word / self.words, word % self.words);
        let mut grown = before;
        for row in row.saturating_sub(1)..=(row + 1).min(self.rows - 1) {
            let at = row * self.words + column;
            let here = self.edges[at];
            grown |= here | here << 1 | here >> 1;
            if column > 0 {
                grown |= self.edges[at - 1] >> (BITS - 1);
            }
            if column + 1 < self.words {
                grown |= self.edges[at + 1] << (BITS - 1);
            }
        }
        grown = fill(grown & candidates, candidates);
        if grown == before {
            return;
        }
        self.edges[word] = grown;
        for row in row.saturating_sub(1)..=(row + 1).min(self.rows - 1) {
            for column in column.saturating_sub(1)..=(column + 1).min(self.words - 1) {
                let at = row * self.words + column;
                let bit = 1 << (at % BITS);
                if at <= reached
                    && at != word
                    && self.candidates[at] != self.edges[at]
                    && self.is_waiting[at / BITS] & bit == 0
                {
                    self.is_waiting[at / BITS] |= bit;
                    self.waiting.push(at as u32);
                }
            }
        }
    }
}

/// Spreads `seeds` along the runs of set bits in `within`.
fn fill(seeds: u64, within: u64) -> u64 {
    let (mut up, mut down) = (seeds, seeds);
    let (mut up_within, mut down_within) = (within, within);
    for shift in [1, 2, 4, 8, 16, 32] {
        up |= up_within & up << shift;
        up_within &= up_within << shift;
        down |= down_within & down >> shift;
        down_within &= down_within >> shift;
    }
    up | down
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_whole_runs_and_no_others() {
        let within = 0b1111_0111_0000_1111_0001;
        assert_eq!(
            fill(0b0000_0010_0000_0100_0000, within),
            0b0000_0111_0000_1111_0000
        );
        assert_eq!(fill(1 << 63, u64::MAX), u64::MAX);
        assert_eq!(fill(0, u64::MAX), 0);
    }
}
