//! Bounds what all threads hold for images together. Images of usual size pass without a look at
//! one another; large ones wait until there is room.

use std::sync::{Condvar, Mutex, PoisonError};

/// Room in bytes.
#[derive(Debug)]
pub struct MemoryGate {
    /// What each thread may hold without asking.
    share: u64,
    room: Mutex<u64>,
    all: u64,
    freed: Condvar,
}

/// Room that is given back when this is dropped.
#[derive(Debug)]
pub struct Pass<'a> {
    gate: &'a MemoryGate,
    bytes: u64,
}

impl MemoryGate {
    /// For `threads` threads that may hold `memory` bytes together: a quarter is theirs in equal
    /// shares, the rest is for those who need more.
    pub fn new(memory: u64, threads: usize) -> Self {
        let shares = memory / 4;
        let all = memory - shares;
        Self {
            share: shares / threads.max(1) as u64,
            room: Mutex::new(all),
            all,
            freed: Condvar::new(),
        }
    }

    /// Bytes that one image can be given.
    pub fn largest(&self) -> u64 {
        self.all
    }

    /// Waits until `bytes` may be held. What there will never be room for is held alone.
    pub fn enter(&self, bytes: u64) -> Pass<'_> {
        if bytes <= self.share {
            return Pass {
                gate: self,
                bytes: 0,
            };
        }
        let bytes = bytes.min(self.all);
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        while *room < bytes {
            room = self
                .freed
                .wait(room)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *room -= bytes;
        Pass { gate: self, bytes }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let room = &self.gate.room;
            *room.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
            self.gate.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_images_are_held_one_at_a_time() {
        let gate = MemoryGate::new(1000, 2);
        let small = gate.enter(125);
        let large = gate.enter(400);
        assert_eq!(*gate.room.lock().unwrap(), 350);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(gate.enter(u64::MAX)));
            assert!(!other.is_finished());
            drop(large);
            other.join().unwrap();
        });
        drop(small);
        assert_eq!(*gate.room.lock().unwrap(), gate.largest());
    }
}
