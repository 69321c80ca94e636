//! Following a run: reading what is beside the output, and then the reports of unfinished
//! items, over and over.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use rules::model::PlanFacts;
use storage::state::batch::Batch;
use storage::state::report::ChunkReport;
use storage::state::{StateError, frozen_job, layout, plan::PlanSummary};
use time::OffsetDateTime;

use super::book::milliseconds;
use super::bounds;
use super::lock;
use super::planner;
use super::session::Session;
use super::silence::Silence;
use super::trouble::Failed;

/// Files that are read at the same time.
const READS_IN_FLIGHT: usize = 32;

/// Reads what a run of that name left, then follows it.
pub(super) async fn follow(session: Arc<Session>) {
    if let Err(error) = open(&session).await {
        let message = format!("what run {} left can't be read: {error}", session.run);
        return session.refuse("RunUnreadable", message);
    }
    let mut silence = Silence::new(session.pace.silent_after);
    loop {
        let unfinished = lock(&session.book).unfinished();
        if unfinished.is_empty() {
            lock(&session.book).rest();
            session.items_changed.notified().await;
            continue;
        }
        if look(&session, &unfinished).await.is_ok() {
            let now = OffsetDateTime::now_utc();
            let versions = {
                let mut book = lock(&session.book);
                book.end_look(now);
                book.versions(&unfinished)
            };
            session.publish_items();
            let silent = silence.look(milliseconds(now), versions);
            session.update(|facts| facts.silent = silent);
        }
        tokio::time::sleep(session.budget.looks(session.pace.follow_every)).await;
    }
}

async fn open(session: &Session) -> Result<(), Failed> {
    let freeze = || freeze(session).boxed();
    session.insist("freeze the manifest", freeze).await?;
    let read_plan = || read_plan(session).boxed();
    if let Some(summary) = session.insist("read the plan", read_plan).await? {
        session.update(|facts| facts.plan = PlanFacts::Made(planner::totals(&summary)));
    }
    let read_batches = || read_batches(session).boxed();
    let batches = session.insist("read the batches", read_batches).await?;
    let items = {
        let mut book = lock(&session.book);
        for batch in &batches {
            book.add_batch(batch);
        }
        book.all()
    };
    look(session, &items).await?;
    // What was done before is no sample of the speed.
    lock(&session.book).rest();
    session.publish_items();
    session.update(|facts| facts.batches_loaded = true);
    Ok(())
}

/// Writes the manifest of the run, unless one is there; the one that counts.
pub(super) async fn freeze(session: &Session) -> Result<serde_json::Value, Failed> {
    session.fence()?.check().await?;
    let output = session.output()?;
    if let Some(manifest) = &session.hold.manifest {
        return Ok(frozen_job::freeze(&*output, &session.run, manifest).await?);
    }
    let found = frozen_job::read(&*output, &session.run).await?;
    found.ok_or_else(|| Failed::Refused {
        reason: "RunUnreadable",
        message: format!(
            "{} is gone, and the spec is another than the run began with: change it back, or ask \
             for a re-run",
            layout::frozen_job(&session.run)
        ),
    })
}

async fn read_plan(session: &Session) -> Result<Option<PlanSummary>, Failed> {
    let output = session.output()?;
    Ok(PlanSummary::read(&*output, &session.run).await?)
}

async fn read_batches(session: &Session) -> Result<Vec<Batch>, Failed> {
    let output = session.output()?;
    let folder = layout::batches(&session.run);
    let files = output.list_bounded(&folder, bounds::BATCHES).await?;
    let numbers: Vec<_> = files
        .iter()
        .filter_map(|file| layout::parse_batch(&file.key))
        .collect();
    let reads = stream::iter(numbers).map(|(run, batch, attempt)| {
        let output = Arc::clone(&output);
        async move { Batch::read(&*output, &run, batch, attempt).await }
    });
    let mut reads = reads.buffered(READS_IN_FLIGHT);
    let mut batches = Vec::new();
    while let Some(batch) = reads.try_next().await? {
        batches.extend(batch);
        bounds::check_items(&batches)?;
    }
    Ok(batches)
}

/// Reads those reports of items that have changed; `items` are first chunks, ascending.
pub(super) async fn look(session: &Session, items: &[u64]) -> Result<(), Failed> {
    session
        .insist("read the reports of workers", || {
            look_once(session, items).boxed()
        })
        .await
}

async fn look_once(session: &Session, items: &[u64]) -> Result<(), Failed> {
    let output = session.output()?;
    let run = &session.run;
    let keys: Vec<String> = items
        .iter()
        .map(|first| layout::chunk_report(run, *first))
        .collect();
    let found = output.find(&keys).await?;
    let news: Vec<_> = {
        let book = lock(&session.book);
        found
            .into_iter()
            .filter_map(|object| Some((layout::parse_chunk_report(&object.key)?.1, object.etag)))
            .filter(|(first, etag)| book.is_news(*first, etag))
            .collect()
    };
    let mut reads = stream::iter(news)
        .map(|(first, etag)| {
            let output = Arc::clone(&output);
            async move {
                let _leave = session.budget.report().await;
                (first, etag, ChunkReport::read(&*output, run, first).await)
            }
        })
        .buffer_unordered(READS_IN_FLIGHT);
    while let Some((first, etag, read)) = reads.next().await {
        let report = match read {
            Ok(report) => report,
            Err(error @ StateError::Storage(_)) => return Err(error.into()),
            Err(error) if bounds::is_hostile(&error) => {
                let message = format!("a report of run {run} can't be read: {error}");
                session.refuse("RunUnreadable", message);
                return Err(error.into());
            }
            // It says nothing then; the item counts as lost once its Job is over.
            Err(error) => {
                tracing::warn!(%run, %error, "a report is passed over");
                None
            }
        };
        let report = report.filter(|report| report.digest == session.hold.digest);
        lock(&session.book).add_report(first, etag, report.as_ref());
    }
    Ok(())
}
