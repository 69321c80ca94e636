//! A reader of an output that never stops looking while writers come and go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use futures::TryStreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use storage::Store;

/// A thread that lists a prefix and reads every version of every shard in full.
pub struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<String>)>,
}

impl Reader {
    /// Starts it.
    pub fn start(store: Arc<dyn Store>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(watch(&*store, &stopped))
        });
        Self { stop, thread }
    }

    /// Ends it after one more look; how many objects it read.
    ///
    /// # Panics
    /// If any of them could not be parsed.
    pub fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let (read, broken) = self.thread.join().expect("the reader");
        assert!(broken.is_empty(), "of {read} objects: {broken:#?}");
        read
    }
}

async fn watch(store: &dyn Store, stop: &AtomicBool) -> (usize, Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        let pages: Vec<_> = store.list_shards().try_collect().await.expect("list");
        for shard in pages.into_iter().flat_map(|page| page.shards) {
            if !seen.insert((shard.key.clone(), shard.etag.0.to_string())) {
                continue;
            }
            match store.read(&shard.key).await {
                Ok((_, bytes)) => {
                    if let Err(error) = parse(bytes) {
                        broken.push(format!("{}: {error}", shard.key));
                    }
                }
                // The test cleared the output to begin anew.
                Err(error) if error.is_not_found() => {}
                Err(error) => broken.push(error.to_string()),
            }
        }
        if is_last {
            return (seen.len(), broken);
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// Decodes every value.
fn parse(bytes: Bytes) -> parquet::errors::Result<()> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()?;
    for batch in reader {
        batch?;
    }
    Ok(())
}
