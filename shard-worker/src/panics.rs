//! Panics: those of libraries are caught where they can be told, and no other one is silent.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    /// How many catchers this thread's work is inside of.
    static CATCHERS: Cell<usize> = const { Cell::new(0) };
}

/// From now on a panic that nobody catches is told at once; one that is caught is for whoever
/// caught it to tell.
pub fn tell(json: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        if CATCHERS.get() > 0 {
            tracing::debug!("{panic}");
        } else {
            say(json, &format!("a fault of this program: {panic}"));
        }
    }));
}

/// Tells people, or whoever collects JSON lines, what went wrong. Where nobody listens any more,
/// that is no fault.
pub fn say(json: bool, text: &str) {
    if json {
        tracing::error!("{text}");
    } else {
        let _ = writeln!(std::io::stderr(), "error: {text}");
    }
}

/// Does some work; `Err` is the message of its panic.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    CATCHERS.set(CATCHERS.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHERS.set(CATCHERS.get() - 1);
    outcome.map_err(|panic| message(&*panic))
}

/// As [`caught`], for work that waits.
pub async fn caught_future<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    poll_fn(|context| match caught(|| work.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
        Err(message) => Poll::Ready(Err(message)),
    })
    .await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
