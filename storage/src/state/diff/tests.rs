use std::collections::BTreeMap;
use std::sync::Arc;

use time::macros::datetime;

use super::*;
use crate::state::RunId;
use crate::state::manifest::ManifestPart;
use crate::state::shard_lines::{MainShard, OutputShard, ShardLine};

fn object(etag: &str, size: u64) -> ObjectMeta {
    ObjectMeta {
        key: "a/0.parquet".to_owned(),
        size,
        etag: tag(etag),
    }
}

fn tag(text: &str) -> ETag {
    ETag(text.into())
}

fn done(digest: &str, main: &ObjectMeta, output: &ObjectMeta) -> RecordedLine {
    RecordedLine {
        line: ShardLine {
            path: main.key.clone(),
            status: ShardStatus::Done,
            rows: 10,
            matched: 9,
            nulls: BTreeMap::new(),
            main: MainShard {
                size: main.size,
                etag: main.etag.clone(),
                footer_sha256: None,
            },
            inputs: None,
            output: Some(OutputShard {
                size: output.size,
                etag: output.etag.clone(),
                sha256: None,
            }),
            reason: None,
        },
        part: Arc::new(ManifestPart {
            key: "_sidecar/runs/x".to_owned(),
            run: RunId::new(datetime!(2025-06-01 10:00 UTC), 0),
            digest: digest.to_owned(),
            chunk: 0,
            shards: 1,
            first: main.key.clone(),
            last: main.key.clone(),
            sha256: String::new(),
            size: 1,
        }),
    }
}

fn failed(line: RecordedLine) -> RecordedLine {
    let RecordedLine { line, part } = line;
    let reason = Some("broken".to_owned());
    RecordedLine {
        line: ShardLine {
            status: ShardStatus::Failed,
            output: None,
            reason,
            ..line
        },
        part,
    }
}

#[test]
fn decisions() {
    let (main, output) = (object("m", 100), object("o", 20));
    let vouched = done("d", &main, &output);
    let replace = |why| Decision::Redo {
        replace: tag("o"),
        why,
    };
    let other = Decision::Conflict {
        digest: Some("other".to_owned()),
    };
    let failed_before = failed(vouched.clone());
    let no_output = RecordedLine {
        line: ShardLine {
            output: None,
            ..vouched.line.clone()
        },
        part: Arc::clone(&vouched.part),
    };

    // Name, main, output, line; the decision with and without skip-existing.
    for (name, main, output, line, skipping, asked) in [
        (
            "nothing",
            &main,
            None,
            None,
            Decision::Create,
            Decision::Create,
        ),
        (
            "output was deleted",
            &main,
            None,
            Some(&vouched),
            Decision::Create,
            Decision::Create,
        ),
        (
            "failed before",
            &main,
            None,
            Some(&failed_before),
            Decision::Create,
            Decision::Create,
        ),
        (
            "no line",
            &main,
            Some(&output),
            None,
            Decision::CheckFooter,
            Decision::CheckFooter,
        ),
        (
            "an old output, and a later failure",
            &main,
            Some(&output),
            Some(&failed_before),
            Decision::CheckFooter,
            Decision::CheckFooter,
        ),
        (
            "done without an output",
            &main,
            Some(&output),
            Some(&no_output),
            Decision::CheckFooter,
            Decision::CheckFooter,
        ),
        (
            "vouched",
            &main,
            Some(&output),
            Some(&vouched),
            Decision::Skip,
            replace(RedoReason::Asked),
        ),
        (
            "output has another version",
            &main,
            Some(&object("o2", 20)),
            Some(&vouched),
            Decision::CheckFooter,
            Decision::CheckFooter,
        ),
        (
            "output has another size",
            &main,
            Some(&object("o", 21)),
            Some(&vouched),
            Decision::CheckFooter,
            Decision::CheckFooter,
        ),
        (
            "main has another version",
            &object("m2", 100),
            Some(&output),
            Some(&vouched),
            replace(RedoReason::MainChanged),
            replace(RedoReason::MainChanged),
        ),
        (
            "main has another size",
            &object("m", 101),
            Some(&output),
            Some(&vouched),
            replace(RedoReason::MainChanged),
            replace(RedoReason::MainChanged),
        ),
        (
            "another pipeline",
            &main,
            Some(&output),
            Some(&done("other", &main, &output)),
            other.clone(),
            other.clone(),
        ),
        (
            "a pipeline that this one replaces",
            &main,
            Some(&output),
            Some(&done("old", &main, &output)),
            replace(RedoReason::PipelineChanged),
            replace(RedoReason::PipelineChanged),
        ),
        (
            "another pipeline, and main changed",
            &object("m2", 100),
            Some(&output),
            Some(&done("other", &main, &output)),
            other.clone(),
            other,
        ),
    ] {
        let policy = |skip_existing| Policy {
            digest: "d".to_owned(),
            skip_existing,
            replaces: vec!["old".to_owned()],
        };
        assert_eq!(
            decide(main, output, line, &policy(true)),
            skipping,
            "{name}"
        );
        assert_eq!(
            decide(main, output, line, &policy(false)),
            asked,
            "{name}, asked"
        );
    }
}

#[test]
fn footers() {
    let output = object("o", 20);
    let replace = |why| Decision::Redo {
        replace: tag("o"),
        why,
    };
    let ours = |digest: &str, same_main, same_rows| FooterFinding::Ours {
        digest: digest.to_owned(),
        same_main,
        same_rows,
        same_inputs: true,
    };
    let unreadable = replace(RedoReason::Unreadable);
    let torn = replace(RedoReason::Torn);
    let foreign = Decision::Conflict { digest: None };
    let other = Decision::Conflict {
        digest: Some("other".to_owned()),
    };
    for (footer, skipping, asked) in [
        (FooterFinding::Broken, unreadable.clone(), unreadable),
        (FooterFinding::Torn, torn.clone(), torn),
        (FooterFinding::Foreign, foreign.clone(), foreign),
        (ours("other", true, true), other.clone(), other.clone()),
        (ours("other", false, false), other.clone(), other),
        (
            ours("old", true, true),
            replace(RedoReason::PipelineChanged),
            replace(RedoReason::PipelineChanged),
        ),
        (
            ours("d", true, true),
            Decision::Skip,
            replace(RedoReason::Asked),
        ),
        (
            ours("d", false, true),
            replace(RedoReason::MainChanged),
            replace(RedoReason::MainChanged),
        ),
        (
            ours("d", false, false),
            replace(RedoReason::MainChanged),
            replace(RedoReason::MainChanged),
        ),
        (
            ours("d", true, false),
            replace(RedoReason::RowsDiffer),
            replace(RedoReason::RowsDiffer),
        ),
    ] {
        let policy = |skip_existing| Policy {
            digest: "d".to_owned(),
            skip_existing,
            replaces: vec!["old".to_owned()],
        };
        assert_eq!(
            after_footer(&output, &footer, &policy(true)),
            skipping,
            "{footer:?}"
        );
        assert_eq!(
            after_footer(&output, &footer, &policy(false)),
            asked,
            "{footer:?}, asked"
        );
    }
}

#[test]
fn other_inputs_are_a_reason_to_make_a_shard_again() {
    let (main, output) = (object("m", 100), object("o", 20));
    let made_from = |inputs: Option<&str>| {
        let RecordedLine { line, part } = done("d", &main, &output);
        let inputs = inputs.map(str::to_owned);
        RecordedLine {
            line: ShardLine { inputs, ..line },
            part,
        }
    };
    let redo = Decision::Redo {
        replace: tag("o"),
        why: RedoReason::SideInputChanged,
    };
    for (before, now, expected) in [
        (Some("1"), Some("1"), Decision::Skip),
        (Some("1"), Some("2"), redo.clone()),
        // An earlier release made it, or the planner couldn't look.
        (None, Some("2"), Decision::Skip),
        (Some("1"), None, Decision::Skip),
    ] {
        let line = made_from(before);
        let found = with_inputs(Decision::Skip, Some(&output), Some(&line), now);
        assert_eq!(found, expected, "{before:?}, {now:?}");
    }
    // What is made anyway, or refused, stays so.
    let line = made_from(Some("1"));
    for decision in [Decision::Create, Decision::Conflict { digest: None }] {
        let found = with_inputs(decision.clone(), Some(&output), Some(&line), Some("2"));
        assert_eq!(found, decision);
    }
    let policy = Policy {
        digest: "d".to_owned(),
        skip_existing: true,
        replaces: Vec::new(),
    };
    let ours = FooterFinding::Ours {
        digest: "d".to_owned(),
        same_main: true,
        same_rows: true,
        same_inputs: false,
    };
    assert_eq!(after_footer(&output, &ours, &policy), redo);
}
