use rules::sizing::ItemCosts;
use storage::state::RunId;
use storage::state::batch::WorkItem;
use storage::state::report::{ColumnCounts, Failure, RowErrors, Seconds};
use time::macros::datetime;

use super::*;

const START: OffsetDateTime = datetime!(2025-06-01 10:00 UTC);

fn run() -> RunId {
    RunId::new(START, 0)
}

fn batch(number: u64, attempt: u32, items: &[Item]) -> Batch {
    let items = items
        .iter()
        .map(|(first, end)| WorkItem::from(*first..*end));
    Batch::new(run(), "d".into(), number, attempt, items).counting(1, attempt - 1)
}

/// A book with these items in attempt 1 of batch 0.
fn book(items: &[Item]) -> Book {
    let mut book = Book::new(Duration::from_secs(300));
    book.add_batch(&batch(0, 1, items));
    book
}

fn report(item: Item, attempt: u32, worker: &str, done: u64, failed: u64) -> ChunkReport {
    let planned = item.1 - item.0;
    let mut report = ChunkReport::new(run(), "d".into(), 0, worker.into(), planned, START)
        .of_item((item.0..item.1).into(), attempt);
    report.counts.shards_done = done;
    report.counts.shards_failed = failed;
    report.counts.rows = done * 10;
    report.counts.matched = done * 9;
    if done + failed == planned {
        report.state = ChunkState::Done;
    }
    report
}

fn add(book: &mut Book, report: &ChunkReport) {
    let etag = ETag(format!("{}-{}", report.worker, report.counts.shards_done).into());
    book.add_report(report.chunk, etag, Some(report));
}

#[test]
fn an_item_ends_when_its_report_is_done_and_whole() {
    let mut book = book(&[(0, 10), (10, 20)]);
    assert_eq!(book.unfinished(), [0, 10]);
    add(&mut book, &report((0, 10), 1, "a", 10, 0));
    add(&mut book, &report((10, 20), 1, "b", 4, 1));
    assert_eq!(book.unfinished(), [10]);
    let mut short = report((10, 20), 1, "b", 9, 0);
    short.state = ChunkState::Done;
    add(&mut book, &short);
    assert_eq!(book.unfinished(), [10], "a shard has no result");
    add(&mut book, &report((10, 20), 1, "b", 9, 1));
    assert_eq!(book.unfinished(), [] as [u64; 0]);
    let progress = book.progress();
    assert_eq!((progress.done, progress.failed), (19, 1));
    assert_eq!((progress.rows, progress.matched), (190, 171));
    let facts = &book.batches()[0].attempts[0];
    assert_eq!((facts.ended, facts.was_seen, facts.epoch), (2, true, 1));
}

#[test]
fn a_report_of_another_range_is_no_report_of_the_item() {
    let mut book = book(&[(0, 10)]);
    add(&mut book, &report((0, 9), 1, "a", 9, 0));
    assert_eq!(book.unfinished(), [0]);
    assert!(!book.is_news(0, &ETag("a-9".into())));
    assert!(book.is_news(0, &ETag("a-10".into())));
    assert!(!book.is_news(5, &ETag("x".into())), "no such item");
}

#[test]
fn what_is_lost_is_settled_and_done_again() {
    let mut book = book(&[(0, 10), (10, 20), (20, 30)]);
    add(&mut book, &report((0, 10), 1, "a", 10, 0));
    let mut stopped = report((10, 20), 1, "b", 3, 0);
    stopped.state = ChunkState::Stopped;
    stopped.reason = Some("told to stop".into());
    add(&mut book, &stopped);
    assert!(book.ask_to_settle(0, 1));
    assert!(!book.ask_to_settle(0, 1));
    assert!(!book.ask_to_settle(0, 2), "no such attempt");
    book.settle(0, 1, None, START);
    let facts = book.batches();
    let settled = facts[0].attempts[0].settled.clone().unwrap();
    assert_eq!(settled.lost, [(10, 20), (20, 30)]);
    assert_eq!(settled.reason.as_deref(), Some("told to stop"));
    assert!(!book.ask_to_settle(0, 1), "it is settled");

    book.add_batch(&batch(0, 2, &settled.lost));
    let again = &book.batches()[0].attempts[1];
    assert_eq!((again.was_seen, again.ended), (false, 0));
    add(&mut book, &report((10, 20), 2, "c", 0, 0));
    assert!(book.batches()[0].attempts[1].was_seen);
    let progress = book.progress();
    assert_eq!(progress.done, 13, "progress never goes back");
    let mut resumed = report((10, 20), 2, "c", 7, 0);
    resumed.counts.shards_skipped = 3;
    resumed.state = ChunkState::Done;
    add(&mut book, &resumed);
    assert_eq!(book.progress().done, 20);
    assert_eq!(book.unfinished(), [20]);
}

fn ended(item: Item, attempt: u32, reason: &str, state: ChunkState) -> ChunkReport {
    let mut ended = report(item, attempt, "a", 0, 0);
    ended.state = state;
    ended.reason = Some(reason.to_owned());
    ended
}

#[test]
fn the_reason_that_says_most_is_told() {
    let mut book = book(&[(0, 10), (10, 20)]);
    let reason = |book: &mut Book| {
        book.forget_requests();
        book.settle(0, 1, Some("OOMKilled (exit 137)"), START);
        let settled = book.batches()[0].attempts[0].settled.clone().unwrap();
        assert_eq!(settled.lost_shards, 20);
        settled.reason.unwrap()
    };
    assert_eq!(reason(&mut book), "its workers died: OOMKilled (exit 137)");
    let stopped = ended((0, 10), 1, "told to stop", ChunkState::Stopped);
    add(&mut book, &stopped);
    assert_eq!(reason(&mut book), "told to stop");
    let failed = ended((10, 20), 1, "the store is away", ChunkState::Failed);
    add(&mut book, &failed);
    assert_eq!(reason(&mut book), "the store is away");
}

/// Of its batch it gives up that item alone, and a restart of the operator forgets nothing.
#[test]
fn an_item_that_can_not_be_done_has_failed() {
    let mut book = book(&[(0, 10), (10, 20), (20, 30)]);
    add(&mut book, &report((0, 10), 1, "a", 10, 0));
    let mut hopeless = ended((20, 30), 1, "the index is gone", ChunkState::Failed);
    hopeless.is_permanent = true;
    hopeless.counts.shards_done = 3;
    add(&mut book, &hopeless);
    assert_eq!(book.unfinished(), [10]);
    book.settle(0, 1, None, START);
    let facts = book.batches();
    let settled = facts[0].attempts[0].settled.as_ref().unwrap();
    assert_eq!(settled.lost, [(10, 20)]);
    let given_up = GivenUpItems {
        items: vec![(20, 30)],
        reason: Some("the index is gone".to_owned()),
        is_permanent: true,
    };
    assert_eq!(facts[0].given_up, given_up);
    assert_eq!(book.reason_of(20), Some("the index is gone"));
    let progress = book.progress();
    assert_eq!((progress.done, progress.failed), (13, 7));
    let note = FailureNote {
        path: "shards 20 to 29 of the plan".to_owned(),
        reason: "the index is gone".to_owned(),
    };
    assert_eq!(progress.failures, [note]);
    book.add_batch(&batch(0, 2, &[(10, 20)]));
    assert_eq!(book.batches()[0].given_up, given_up);
}

/// An item that was tried often enough stays given up when others of its batch are made again.
#[test]
fn an_item_that_a_later_attempt_goes_without_is_given_up() {
    let mut book = book(&[(0, 10), (10, 20), (20, 30)]);
    add(&mut book, &report((0, 10), 1, "a", 10, 0));
    add(&mut book, &report((20, 30), 1, "b", 4, 0));
    assert_eq!(book.batches()[0].given_up, GivenUpItems::default());
    book.add_batch(&batch(0, 2, &[(0, 10)]));
    let given_up = book.batches()[0].given_up.clone();
    assert_eq!(given_up.items, [(10, 20), (20, 30)]);
    assert!(!given_up.is_permanent);
}

#[test]
fn a_done_report_of_an_earlier_attempt_does_not_end_a_later_one() {
    let mut book = book(&[(0, 10)]);
    add(&mut book, &report((0, 10), 1, "a", 10, 0));
    book.add_batch(&batch(0, 2, &[(0, 10)]));
    assert_eq!(book.unfinished(), [0]);
    let attempts = &book.batches()[0].attempts;
    assert_eq!((attempts[0].ended, attempts[1].ended), (1, 0));
    assert_eq!(book.progress().done, 10);
}

#[test]
fn requests_that_were_interrupted_can_be_made_again() {
    let mut book = book(&[(0, 10)]);
    assert!(book.ask_to_settle(0, 1));
    book.forget_requests();
    assert!(book.ask_to_settle(0, 1));
}

#[test]
fn speed_is_what_was_finished_between_looks() {
    let mut book = book(&[(0, 10), (10, 20)]);
    let at = |seconds| START + Duration::from_secs(seconds);
    let told = |mut report: ChunkReport, began: u64, updated: u64| {
        (report.started_at, report.updated_at) = (at(began), at(updated));
        report
    };
    add(&mut book, &told(report((0, 10), 1, "a", 5, 0), 0, 100));
    book.end_look(at(100));
    add(&mut book, &told(report((0, 10), 1, "a", 7, 1), 0, 106));
    add(&mut book, &told(report((10, 20), 1, "b", 0, 0), 102, 108));
    book.end_look(at(110));
    let progress = book.progress();
    assert_eq!(progress.window_shards, 3);
    assert_eq!((progress.window_rows, progress.window_workers), (20, 0.6));
    assert!((progress.window_seconds - 10.0).abs() < 1e-9);
    // Another pod of the same index, which has its name, begins the item again.
    add(&mut book, &told(report((0, 10), 1, "a", 2, 0), 112, 118));
    book.end_look(at(120));
    let progress = book.progress();
    assert_eq!((progress.window_shards, progress.window_workers), (5, 0.6));
    assert_eq!(
        (progress.done, progress.failed),
        (7, 1),
        "the furthest report counts"
    );
    book.rest();
    assert_eq!(book.progress().window_shards, 0);
}

/// What a worker has found in place is no work of its own.
#[test]
fn shards_that_were_found_are_no_speed() {
    let mut book = book(&[(0, 10)]);
    book.end_look(START);
    let mut resumed = report((0, 10), 1, "a", 2, 0);
    resumed.counts.shards_skipped = 6;
    resumed.counts.rows = 80;
    add(&mut book, &resumed);
    book.end_look(START + Duration::from_secs(10));
    let progress = book.progress();
    assert_eq!((progress.window_shards, progress.window_rows), (2, 20));
}

/// Workers that all begin at once are as quick as those in the middle of their items: what their
/// start has cost is charged to their shards as these are finished.
#[test]
fn a_workers_start_is_spread_over_its_shards() {
    let mut book = book(&[(0, 10), (10, 20)]);
    book.end_look(START);
    let mut look = |seconds: u64, done: u64| {
        for item in [(0, 10), (10, 20)] {
            let mut begun = report(item, 1, "a", done, 0);
            // Eight seconds of start, four of them before its first report; then one a shard.
            begun.counts.seconds.start = 4.0;
            begun.counts.seconds.index_pass = 4.0;
            begun.started_at = START + Duration::from_secs(4);
            begun.updated_at = START + Duration::from_secs(seconds);
            add(&mut book, &begun);
        }
        book.end_look(START + Duration::from_secs(seconds));
        let progress = book.progress();
        let worked = progress.window_workers * progress.window_seconds;
        (progress.window_shards, (worked * 1000.0).round() / 1000.0)
    };
    assert_eq!(look(7, 0), (0, 0.0));
    assert_eq!(look(10, 2), (4, 7.2));
    assert_eq!(look(13, 5), (10, 18.0));
    assert_eq!(look(18, 10), (20, 36.0));
}

#[test]
fn fixed_costs_count_once_the_first_shard_is_there() {
    let mut book = book(&[(0, 10), (10, 20)]);
    let mut early = report((0, 10), 1, "a", 0, 0);
    early.counts.seconds = Seconds {
        start: 1.0,
        index_pass: 5.0,
        shards: 0.0,
    };
    add(&mut book, &early);
    assert_eq!(book.progress().costs, ItemCosts::default());
    let mut later = report((0, 10), 1, "a", 4, 0);
    later.counts.seconds = Seconds {
        start: 1.0,
        index_pass: 20.0,
        shards: 8.0,
    };
    add(&mut book, &later);
    let progress = book.progress();
    let cost = progress.costs.cost();
    assert!((cost.fixed - 21.0).abs() < 1e-9, "{cost:?}");
    assert!((cost.shard - 2.0).abs() < 1e-9, "{cost:?}");
}

#[test]
fn columns_are_summed_by_name() {
    let mut book = book(&[(0, 10), (10, 20)]);
    let counts = |populated, null| ColumnCounts {
        populated,
        null,
        error: 0,
    };
    let mut first = report((0, 10), 1, "a", 10, 0);
    first.counts.columns = [("x".into(), counts(90, 10)), ("y".into(), counts(0, 100))].into();
    let mut second = report((10, 20), 1, "b", 10, 0);
    second.counts.columns = [("y".into(), counts(50, 50)), ("z".into(), counts(1, 0))].into();
    add(&mut book, &first);
    add(&mut book, &second);
    let nulls = book.progress().nulls;
    let expected = [("x", (10, 100)), ("y", (150, 200)), ("z", (0, 1))];
    assert_eq!(
        nulls,
        expected.map(|(name, sums)| (name.to_owned(), sums)).into()
    );
}

#[test]
fn ten_failures_are_named_the_first_by_path() {
    let items: Vec<Item> = (0..30).map(|item| (item * 10, item * 10 + 10)).collect();
    let mut book = book(&items);
    for item in items.iter().rev() {
        let mut failed = report(*item, 1, "a", 9, 1);
        failed.failures = vec![Failure {
            path: format!("{:04}.parquet", item.0),
            reason: "é".repeat(10_000),
        }];
        add(&mut book, &failed);
    }
    let failures = book.progress().failures;
    assert_eq!(failures.len(), 10);
    assert_eq!(failures[9].path, "0090.parquet");
    assert!(
        failures
            .iter()
            .all(|failure| failure.reason.len() <= REASON_BYTES)
    );
    // A further attempt may succeed.
    book.add_batch(&batch(0, 2, &items[..1]));
    add(&mut book, &report((0, 10), 2, "b", 10, 0));
    assert_eq!(book.progress().failures[0].path, "0010.parquet");
}

#[test]
fn a_chunk_belongs_to_one_item() {
    let book = book(&[(0, 10), (20, 30)]);
    let cases = [
        (0, Some((0, 10))),
        (9, Some((0, 10))),
        (10, None),
        (25, Some((20, 30))),
    ];
    for (chunk, item) in cases {
        assert_eq!(book.item_of(chunk), item, "{chunk}");
    }
    assert_eq!(book.item_of(30), None);
}

#[test]
fn faults_of_rows_are_summed_by_reason() {
    let mut book = book(&[(0, 10), (10, 20)]);
    let errors = |rows| RowErrors {
        rows,
        first: Vec::new(),
    };
    let mut first = report((0, 10), 1, "a", 10, 0);
    first.counts.row_errors = [("empty".into(), errors(2)), ("truncated".into(), errors(1))].into();
    let mut second = report((10, 20), 1, "b", 4, 0);
    second.counts.row_errors = [("truncated".into(), errors(3))].into();
    add(&mut book, &first);
    add(&mut book, &second);
    // The same item, further on.
    let mut later = report((10, 20), 1, "b", 10, 0);
    later.counts.row_errors = [("truncated".into(), errors(5))].into();
    add(&mut book, &later);
    // Somebody else finds all of it done.
    let mut kept = report((10, 20), 2, "c", 0, 0);
    kept.counts.shards_skipped = 10;
    add(&mut book, &kept);
    let expected = [("empty", 2), ("truncated", 6)];
    assert_eq!(
        book.progress().row_errors,
        expected
            .map(|(reason, rows)| (reason.to_owned(), rows))
            .into()
    );
}
