//! Counting of requests: atomics while they are made, plain numbers when they are read.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::RequestCounts;

/// Counters that many tasks add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) list: AtomicU64,
    pub(crate) head: AtomicU64,
    pub(crate) get: AtomicU64,
    pub(crate) put: AtomicU64,
    pub(crate) delete: AtomicU64,
    pub(crate) slow_down: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> RequestCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestCounts {
            list: value(&self.list),
            head: value(&self.head),
            get: value(&self.get),
            put: value(&self.put),
            delete: value(&self.delete),
            slow_down: value(&self.slow_down),
            retries: value(&self.retries),
            bytes_read: value(&self.bytes_read),
            bytes_written: value(&self.bytes_written),
        }
    }
}

impl RequestCounts {
    fn combine(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            list: with(self.list, other.list),
            head: with(self.head, other.head),
            get: with(self.get, other.get),
            put: with(self.put, other.put),
            delete: with(self.delete, other.delete),
            slow_down: with(self.slow_down, other.slow_down),
            retries: with(self.retries, other.retries),
            bytes_read: with(self.bytes_read, other.bytes_read),
            bytes_written: with(self.bytes_written, other.bytes_written),
        }
    }
}

impl Add for RequestCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }
}

impl Sub for RequestCounts {
    type Output = Self;

    /// What was requested between two looks at the same counters.
    fn sub(self, earlier: Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }
}

impl std::iter::Sum for RequestCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}
