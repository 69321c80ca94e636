//! Shards, side inputs and keys: nothing is dropped or mixed.
