//! Work that lasts, begun again if it panics.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// Does something until it ends without a panic; after each of those `tell` comes first, which says
/// so and waits.
pub(super) async fn until_it_ends<W, T>(begin: impl Fn() -> W, tell: impl Fn() -> T)
where
    W: Future<Output = ()>,
    T: Future<Output = ()>,
{
    while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
        tell().await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn what_panics_is_told_of_and_begun_again() {
        let (begun, told) = (Cell::new(0), Cell::new(0));
        let work = || async {
            begun.set(begun.get() + 1);
            assert!(begun.get() > 2, "on purpose");
        };
        until_it_ends(work, || async { told.set(told.get() + 1) }).await;
        assert_eq!((begun.get(), told.get()), (3, 2));
    }
}
