use std::collections::BTreeMap;

use storage::ETag;
use storage::state::manifest::ManifestPart;
use storage::state::shard_lines::{MainShard, OutputShard};
use time::macros::datetime;

use super::*;

fn run(random: u32) -> RunId {
    RunId::new(datetime!(2025-06-01 10:00 UTC), random)
}

fn object(etag: &str) -> ObjectMeta {
    ObjectMeta {
        key: "a.parquet".to_owned(),
        size: 20,
        etag: ETag(etag.into()),
    }
}

fn planned() -> PlanLine {
    PlanLine {
        chunk: 7,
        path: "a.parquet".to_owned(),
        size: 100,
        etag: ETag("m".into()),
        rows: None,
        inputs: None,
        existing: None,
    }
}

fn recorded(run: RunId, digest: &str, status: ShardStatus) -> RecordedLine {
    let is_done = status == ShardStatus::Done;
    RecordedLine {
        line: ShardLine {
            path: "a.parquet".to_owned(),
            status,
            rows: 10,
            matched: 9,
            nulls: BTreeMap::new(),
            main: MainShard {
                size: 100,
                etag: ETag("m".into()),
                footer_sha256: None,
            },
            inputs: None,
            output: is_done.then(|| OutputShard {
                size: 20,
                etag: ETag("o".into()),
                sha256: None,
            }),
            reason: (!is_done).then(|| "broken".to_owned()),
        },
        part: Arc::new(ManifestPart {
            key: "_sidecar/runs/x".to_owned(),
            run,
            digest: digest.to_owned(),
            chunk: 0,
            shards: 1,
            first: "a.parquet".to_owned(),
            last: "a.parquet".to_owned(),
            sha256: String::new(),
            size: 1,
        }),
    }
}

#[test]
fn verdicts() {
    let (this, earlier) = (run(1), run(0));
    let done = recorded(this.clone(), "d", ShardStatus::Done);
    let failed = recorded(this.clone(), "d", ShardStatus::Failed);
    let done_before = recorded(earlier.clone(), "d", ShardStatus::Done);
    let of_another = recorded(earlier, "other", ShardStatus::Done);
    let (there, other) = (object("o"), object("p"));
    let missing = |verdict: &Verdict| matches!(verdict, Verdict::Missing(7, _));
    let unrecorded = |verdict: &Verdict| matches!(verdict, Verdict::Unrecorded(7, _));
    // Whether it was planned, what is there, what was recorded, and whether the verdict is right.
    type Case<'a> = (
        &'a str,
        bool,
        Option<&'a ObjectMeta>,
        Option<&'a RecordedLine>,
        &'a dyn Fn(&Verdict) -> bool,
    );
    let cases: [Case<'_>; 12] = [
        ("made", true, Some(&there), Some(&done), &|verdict| {
            *verdict == Verdict::Whole(there.clone(), done.line.clone())
        }),
        (
            "made twice, or another's",
            true,
            Some(&other),
            Some(&done),
            &|verdict| *verdict == Verdict::Other(other.clone(), done.line.clone(), 7),
        ),
        ("made and gone", true, None, Some(&done), &missing),
        ("never ended", true, None, None, &missing),
        (
            "published and never ended",
            true,
            Some(&there),
            None,
            &unrecorded,
        ),
        (
            "only an earlier run says so",
            true,
            Some(&there),
            Some(&done_before),
            &unrecorded,
        ),
        ("failed", true, None, Some(&failed), &|verdict| {
            *verdict == Verdict::Failed("broken".to_owned())
        }),
        (
            "failed, an old one is there",
            true,
            Some(&there),
            Some(&failed),
            &|verdict| *verdict == Verdict::Failed("broken".to_owned()),
        ),
        (
            "kept",
            false,
            Some(&there),
            Some(&done_before),
            &|verdict| *verdict == Verdict::Fine,
        ),
        (
            "kept and gone",
            false,
            None,
            Some(&done_before),
            &|verdict| *verdict == Verdict::Gone(done_before.line.clone()),
        ),
        (
            "of a pipeline that was replaced",
            false,
            None,
            Some(&of_another),
            &|verdict| *verdict == Verdict::Fine,
        ),
        ("an orphan", false, Some(&there), None, &|verdict| {
            *verdict == Verdict::Fine
        }),
    ];
    for (name, is_planned, output, recorded, is_right) in cases {
        let found = Found {
            planned: is_planned.then(planned),
            output: output.cloned(),
            recorded: recorded.cloned(),
        };
        let verdict = found.judge(&this, "d");
        assert!(is_right(&verdict), "{name}: {verdict:?}");
    }
}
