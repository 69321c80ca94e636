//! The image column of a shard, read in pieces: neither a row group nor a page of it is ever
//! held.

mod chunk;
mod codec;
mod hybrid;
mod page_header;
mod stream;
mod window;

pub use chunk::NO_IMAGE;
pub use stream::{Batch, ByteBudget, ImageColumn, Rows, open};
