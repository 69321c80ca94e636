//! Whatever the bytes, an image ends as values or as a reason, and a decoder that panics is a
//! finding, although the worker would survive it.

#![no_main]

use std::cell::RefCell;
use std::sync::OnceLock;

use crds::{ComputeFilters, DecodeLimits, FilterName, OnRowError};
use libfuzzer_sys::fuzz_target;
use shard_worker::filters::judge::{Judge, Scratch};
use shard_worker::filters::reason::Reason;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fn judge() -> &'static Judge {
    static JUDGE: OnceLock<Judge> = OnceLock::new();
    JUDGE.get_or_init(|| {
        let spec = ComputeFilters {
            filters: FilterName::ALL.to_vec(),
            on_error: OnRowError::NullRow,
            limits: DecodeLimits {
                max_pixels: 1 << 20,
                max_bytes: 1 << 24,
                max_decode_millis: 10_000,
            },
        };
        Judge::new(&spec, 256 << 20, 16 << 20, 1)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let judged = SCRATCH.with_borrow_mut(|scratch| judge().judge(Some(bytes), scratch));
    assert_eq!(judged.reason.is_none(), judged.luma.is_some());
    assert_ne!(judged.reason, Some(Reason::DecoderPanic));
    // Nothing that is not a number gets into a column.
    let numbers = judged.clarity.map(|it| it.laplacian_var).into_iter();
    let numbers = numbers.chain(judged.saturation.map(|it| it.mean));
    let numbers = numbers.chain(judged.texture.map(|it| it.local_std));
    let numbers = numbers.chain(judged.color_entropy.map(|it| it.entropy));
    assert!(numbers.into_iter().all(f64::is_finite));
});
