//! The test as worker: it does an item as `shard-worker chunk` does, with shards of its own
//! making, and can be told to fail in every way.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::state::batch::Batch;
use storage::state::clock::SystemClock;
use storage::state::fence::{DEFAULT_MAX_LOOK_AGE, Fence};
use storage::state::plan::{PlanLine, PlanReader, PlanSummary};
use storage::state::report::{ChunkReport, ChunkState, ColumnCounts, Failure, ReportWriter};
use storage::state::shard_lines::{MainShard, OutputShard, ShardLine, ShardStatus, write_lines};
use storage::{Payload, PutCondition, Store};
use time::OffsetDateTime;

use crate::controller::Controller;
use crate::place::{Place, file, path, rows};

/// How a worker does its item.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// Shards that can't be made, by number.
    pub poison: Vec<usize>,
    /// It is told to stop after so many shards.
    pub stop_after: Option<usize>,
    /// It is killed after so many shards: no lines, no last report.
    pub killed_after: Option<usize>,
}

/// Does index `index` of an attempt at a batch.
pub async fn work(
    place: &Place,
    controller: &Controller,
    (batch, attempt, index): (u64, u32, u64),
    way: Way,
) {
    let (run, output) = (controller.run(), place.output());
    let digest = &controller.hold.digest;
    let plan = PlanSummary::read(&*output, &run).await.unwrap().unwrap();
    let file = Batch::read(&*output, &run, batch, attempt).await.unwrap();
    let file = file.unwrap();
    let clock = Arc::new(SystemClock::default());
    let follow = Fence::follow(
        output.clone(),
        &run,
        file.epoch,
        clock,
        DEFAULT_MAX_LOOK_AGE,
    );
    follow.await.unwrap().check().await.unwrap();
    let item = file.item(index).unwrap();
    let planned = PlanReader::read_range(&*output, &plan, item.chunks()).await;
    let planned = planned.unwrap();

    let worker = format!("pod-{batch}-{attempt}-{index}");
    let now = OffsetDateTime::now_utc();
    let count = planned.len() as u64;
    let mut report =
        ChunkReport::new(run.clone(), digest.clone(), 0, worker, count, now).of_item(item, attempt);
    report.counts.seconds.start = 0.5;
    let mut writer = ReportWriter::new(output.clone());
    writer.write(&mut report, now).await.unwrap();
    let mut lines = Vec::new();
    for (position, planned) in planned.into_iter().enumerate() {
        if way.stop_after == Some(position) {
            report.state = ChunkState::Stopped;
            report.reason = Some("stopped by a signal".to_owned());
            break;
        }
        if way.killed_after == Some(position) {
            return;
        }
        let line = make(&*output, planned, digest, &way.poison).await;
        count_line(&mut report, &line);
        lines.push(line);
        let now = OffsetDateTime::now_utc();
        writer.write(&mut report, now).await.unwrap();
    }
    write_lines(&*output, &run, digest, item.first, lines)
        .await
        .unwrap();
    if report.state == ChunkState::Running {
        report.state = ChunkState::Done;
    }
    let now = OffsetDateTime::now_utc();
    writer.write(&mut report, now).await.unwrap();
}

async fn make(output: &dyn Store, planned: PlanLine, digest: &str, poison: &[usize]) -> ShardLine {
    let number = (0..).find(|shard| path(*shard) == planned.path).unwrap();
    let is_poison = poison.contains(&number);
    let mut line = ShardLine {
        path: planned.path.clone(),
        status: ShardStatus::Failed,
        rows: 0,
        matched: 0,
        nulls: BTreeMap::new(),
        main: MainShard {
            size: planned.size,
            etag: planned.etag,
            footer_sha256: None,
        },
        inputs: None,
        output: None,
        reason: is_poison.then(|| format!("shard {number} is malformed")),
    };
    if is_poison {
        return line;
    }
    let rows = rows(number);
    let condition = planned.existing.map_or(PutCondition::Create, |existing| {
        PutCondition::Replace(existing.etag)
    });
    let payload = Payload::new(file(rows, Some(digest)));
    let published = output.put(&planned.path, payload, condition).await.unwrap();
    line.status = ShardStatus::Done;
    line.rows = rows as u64;
    line.matched = rows as u64 - 1;
    line.output = Some(OutputShard {
        size: published.size,
        etag: published.etag,
        sha256: None,
    });
    line
}

fn count_line(report: &mut ChunkReport, line: &ShardLine) {
    let counts = &mut report.counts;
    if let Some(reason) = &line.reason {
        counts.shards_failed += 1;
        report.failures.push(Failure {
            path: line.path.clone(),
            reason: reason.clone(),
        });
        return;
    }
    counts.shards_done += 1;
    counts.rows += line.rows;
    counts.matched += line.matched;
    counts.seconds.shards += 0.25;
    let column = counts.columns.entry("score".to_owned()).or_default();
    *column = ColumnCounts {
        populated: column.populated + line.matched,
        null: column.null + 1,
        error: 0,
    };
}
