//! Which pipelines' shards a run may replace in an output.

use std::collections::BTreeSet;

use super::error::Result;
use super::manifest::Recorded;
use super::plan::PlanSummary;
use crate::store::Store;

/// The digests whose shards a run of the pipeline `digest` may replace: those of `asked`, and
/// those that recorded runs of any of these have replaced in their time, some of whose shards and
/// lines may still be there. So whoever goes on with a pipeline need not know what was there before
/// it. A plan that is damaged says nothing.
///
/// # Errors
/// If a plan can't be read, or is of another version.
pub async fn all_replaced(
    store: &dyn Store,
    recorded: &Recorded,
    digest: &str,
    asked: &[String],
) -> Result<Vec<String>> {
    let mut all: BTreeSet<String> = asked.iter().cloned().collect();
    let mut looked_at = BTreeSet::new();
    loop {
        let next = recorded.parts.iter().find(|part| {
            let is_ours = part.digest == digest || all.contains(&part.digest);
            is_ours && !looked_at.contains(&part.run)
        });
        let Some(run) = next.map(|part| part.run.clone()) else {
            all.remove(digest);
            return Ok(all.into_iter().collect());
        };
        match PlanSummary::read(store, &run).await {
            Ok(Some(summary)) => all.extend(summary.replaces),
            Ok(None) => {}
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "what run {run} has replaced is not known");
            }
            Err(error) => return Err(error),
        }
        looked_at.insert(run);
    }
}
