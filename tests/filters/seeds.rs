//! The fuzzer's seeds and findings, again: none of them may panic, hang or allocate without
//! bound.

use std::path::Path;

use crds::DecodeLimits;
use shard_worker::filters::judge::Scratch;
use shard_worker::filters::reason::Reason;

use crate::kernels::judge;

#[test]
fn seeds_and_findings_end_as_values_or_reasons() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/judge");
    let judge = judge(DecodeLimits {
        max_pixels: 1 << 20,
        max_bytes: 1 << 24,
        max_decode_millis: 10_000,
    });
    let mut scratch = Scratch::default();
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let judged = judge.judge(Some(&bytes), &mut scratch);
        assert_ne!(
            judged.reason,
            Some(Reason::DecoderPanic),
            "{}",
            path.display()
        );
        assert_eq!(
            judged.reason.is_none(),
            judged.luma.is_some(),
            "{}",
            path.display()
        );
        count += 1;
    }
    assert!(count >= 20, "{count} seeds");
}
