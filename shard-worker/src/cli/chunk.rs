//! `shard-worker chunk`: the command of a pod.

use std::sync::Arc;
use std::time::Instant;

use crate::chunk::{ChunkOptions, Outcome, chunk, termination};
use crate::cli::arguments::ChunkArguments;
use crate::cli::exit::Exit;
use crate::cli::{note, print};
use crate::error::{Error, Result};
use crate::resources;
use crate::run::progress::Progress;
use crate::run::stop::Stop;

/// Names the index of a pod in its Indexed Job.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Does the work item, and leaves a termination message whatever comes of it.
pub async fn chunk_command(
    arguments: &ChunkArguments,
    json: bool,
    started: Instant,
) -> Result<Exit> {
    termination::check(&arguments.termination_log).map_err(|error| {
        let path = arguments.termination_log.display();
        Error::Usage(format!("--termination-log {path}: {error}"))
    })?;
    let ended = run(arguments, json, started).await;
    let failed = Outcome::default();
    let (outcome, reason) = match &ended {
        Ok((outcome, reason, _)) => (outcome, reason.clone()),
        Err(error) => (&failed, Some(error.to_string())),
    };
    let message = termination::message(outcome, reason.as_deref());
    termination::leave(&arguments.termination_log, &message);
    let (outcome, _, exit) = ended?;
    print(&format!("{message}\n"))?;
    match outcome.error {
        Some(error) => Err(error),
        None => Ok(exit),
    }
}

/// What came of the item, a reason to tell, and the exit code if there is no error.
async fn run(
    arguments: &ChunkArguments,
    json: bool,
    started: Instant,
) -> Result<(Outcome, Option<String>, Exit)> {
    let options = options(arguments)?;
    let stop = Stop::default();
    stop.on_signals()
        .map_err(|error| Error::Usage(format!("signal handlers cannot be installed: {error}")))?;
    let progress = Arc::new(Progress::default());
    let shown = progress.clone().show(json);
    let outcome = tokio::select! {
        outcome = chunk(&options, progress, stop.clone(), started) => outcome,
        () = stop.overdue() => {
            let text = "stopped by a signal; what was still on its way was given up";
            note(json, text);
            return Ok((Outcome::default(), Some(text.to_owned()), Exit::Terminated));
        }
    };
    shown.abort();
    let exit = if !outcome.is_complete {
        Exit::Terminated
    } else if outcome.counts.shards_failed > 0 {
        Exit::SomeFailed
    } else {
        Exit::Done
    };
    let reason = match (&outcome.error, outcome.failures.first()) {
        (Some(error), _) => Some(error.to_string()),
        (None, _) if exit == Exit::Terminated => Some("stopped by a signal".to_owned()),
        (None, Some(failure)) => Some(format!("{}: {}", failure.path, failure.reason)),
        (None, None) => None,
    };
    Ok((outcome, reason, exit))
}

fn options(arguments: &ChunkArguments) -> Result<ChunkOptions> {
    let index = match arguments.index {
        Some(index) => index,
        None => {
            let index = std::env::var(INDEX_VARIABLE).unwrap_or_default();
            index.parse().map_err(|_| {
                Error::Usage(format!(
                    "{INDEX_VARIABLE} is {index:?}: expected a number; or name the item with --index"
                ))
            })?
        }
    };
    Ok(ChunkOptions {
        output_prefix: arguments.output_prefix.clone(),
        run: arguments.run.clone(),
        epoch: arguments.epoch,
        digest: arguments.digest.clone(),
        batch: arguments.batch,
        attempt: arguments.attempt,
        index,
        memory: arguments.memory.unwrap_or_else(resources::memory),
        threads: arguments.threads.unwrap_or_else(resources::threads),
    })
}
