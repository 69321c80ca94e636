//! Copies what is below one prefix to another: a folder of this machine, or `s3://BUCKET/PATH/`
//! as the usual AWS variables say.
//!
//! ```text
//! copy-objects FROM/ TO/
//! ```
//!
//! What is there already in the same size is left alone.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use storage::{Payload, PutCondition, StorageConfig, Stores};

const IN_FLIGHT: usize = 16;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: copy-objects FROM/ TO/";
    let from = arguments.next().context(usage)?;
    let to = arguments.next().context(usage)?;
    let stores = Stores::new(&StorageConfig::default());
    let source = stores.open(&from)?;
    let target = stores.open(&to)?;
    let there = target.list_folder("").await?;
    let there: HashMap<_, _> = there
        .into_iter()
        .map(|object| (object.key, (object.size, object.etag)))
        .collect();
    let objects = source.list_folder("").await?;
    let count = objects.len();
    let copies = stream::iter(objects).map(|object| {
        let (source, target) = (Arc::clone(&source), Arc::clone(&target));
        let condition = match there.get(&object.key) {
            None => Some(PutCondition::Create),
            Some((size, _)) if *size == object.size => None,
            Some((_, etag)) => Some(PutCondition::Replace(etag.clone())),
        };
        async move {
            let Some(condition) = condition else {
                return Ok(0);
            };
            let (_, bytes) = source.read(&object.key).await?;
            target
                .put(&object.key, Payload::new(bytes), condition)
                .await?;
            anyhow::Ok(1)
        }
    });
    let copied: usize = copies
        .buffer_unordered(IN_FLIGHT)
        .try_fold(0, async |sum, copied| Ok(sum + copied))
        .await?;
    println!("{copied} of {count} objects copied from {from} to {to}");
    Ok(())
}
