//! Histograms by table, several tables at once: equal neighbours would otherwise wait for one
//! another's counter.

const TABLES: usize = 4;

/// Counts of `BINS` values.
#[derive(Debug, Clone)]
pub struct Histogram<const BINS: usize> {
    tables: Box<[[u32; BINS]; TABLES]>,
    full: Box<[u64; BINS]>,
    /// Values counted since the tables were emptied, which must not overflow.
    pending: usize,
}

impl<const BINS: usize> Default for Histogram<BINS> {
    fn default() -> Self {
        Self {
            tables: Box::new([[0; BINS]; TABLES]),
            full: Box::new([0; BINS]),
            pending: 0,
        }
    }
}

impl<const BINS: usize> Histogram<BINS> {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.tables.fill([0; BINS]);
        self.full.fill(0);
        self.pending = 0;
    }

    /// Counts values; those beyond the last bin count as the remainder of their division by
    /// the number of bins.
    pub fn add<T: Copy + Into<usize>>(&mut self, values: &[T]) {
        const { assert!(BINS.is_power_of_two()) };
        let mask = BINS - 1;
        let [first, second, third, fourth] = &mut *self.tables;
        let (fours, rest) = values.as_chunks::<TABLES>();
        for four in fours {
            // Spelled out: array functions are not inlined in every build.
            first[four[0].into() & mask] += 1;
            second[four[1].into() & mask] += 1;
            third[four[2].into() & mask] += 1;
            fourth[four[3].into() & mask] += 1;
        }
        for value in rest {
            first[(*value).into() & mask] += 1;
        }
        self.pending += values.len();
        if self.pending > 1 << 31 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for table in self.tables.iter_mut() {
            for (full, count) in self.full.iter_mut().zip(table) {
                *full += u64::from(*count);
                *count = 0;
            }
        }
        self.pending = 0;
    }

    /// The counts.
    pub fn counts(&mut self) -> &[u64; BINS] {
        self.flush();
        &self.full
    }
}
