//! Room in memory for the shards that are being loaded.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are counted as one.
const UNIT: u64 = 4 << 10;

/// So many bytes for all shards that are being loaded, however much one needs.
#[derive(Debug, Clone)]
pub struct Room {
    free: Arc<Semaphore>,
    units: u32,
}

/// Bytes that are taken for a shard; free again once this is dropped.
#[derive(Debug)]
pub struct Taken {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Room for `bytes`.
    pub fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// Waits until there is room for `bytes`. Who needs more than there is gets all of it, alone.
    pub async fn take(&self, bytes: u64) -> Taken {
        let wanted = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let units = wanted.clamp(1, self.units);
        // It fails only once the semaphore is closed, which nobody does.
        let permit = self.free.clone().acquire_many_owned(units).await;
        Taken {
            _permit: permit.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_is_taken_is_never_more_than_there_is() {
        let room = Room::new(1 << 20);
        let first = room.take(600 << 10).await;
        assert!(room.take(600 << 10).now_or_never().is_none());
        let second = room.take(300 << 10).now_or_never();
        assert!(second.is_some());
        drop(first);
        let third = room.take(700 << 10).now_or_never();
        assert!(third.is_some());
        // More than there is waits for all of it, and gets it.
        assert!(room.take(1 << 40).now_or_never().is_none());
        drop((second, third));
        let all = room.take(1 << 40).now_or_never();
        assert!(all.is_some());
        assert!(room.take(1).now_or_never().is_none());
    }
}
