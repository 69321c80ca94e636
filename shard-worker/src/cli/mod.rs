//! The command line: arguments, then resolved options, then one of the commands.

pub mod arguments;
mod chunk;
pub mod exit;
mod logging;
mod report_file;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{CommandFactory, Parser};
use globset::GlobBuilder;
use serde::Serialize;

use crate::audit::{self, AuditOptions};
use crate::cli::arguments::{
    Arguments, AuditArguments, Command, JobArguments, RunArguments, VerifyArguments,
};
use crate::cli::exit::Exit;
use crate::cli::report_file::ReportFile;
use crate::error::{Error, Result};
use crate::job::{Job, OutputOrigin};
use crate::panics;
use crate::resources;
use crate::run::planning::Selection;
use crate::run::progress::Progress;
use crate::run::stop::Stop;
use crate::run::{self, RunOptions};
use crate::verify::{self, VerifyOptions};

/// Parses the command line, runs the command, and maps its end to an exit code.
pub fn main() -> ExitCode {
    let started = Instant::now();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed pipe is no reason to fail.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    logging::start(arguments.log_format, arguments.verbose);
    let json = arguments.log_format == arguments::LogFormat::Json;
    panics::tell(json);
    let ended = panics::caught(|| execute(arguments, started));
    match ended {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(error)) => {
            panics::say(json, &error.to_string());
            Exit::of(&error).into()
        }
        Err(message) => {
            panics::say(
                json,
                &format!("a fault of this program, please report it: {message}"),
            );
            Exit::Storage.into()
        }
    }
}

/// Tells people, or whoever collects JSON lines, what they should know.
fn note(json: bool, text: &str) {
    if json {
        tracing::warn!("{text}");
    } else {
        // A reader that has gone away is no fault.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

fn execute(arguments: Arguments, started: Instant) -> Result<Exit> {
    let json = arguments.log_format == arguments::LogFormat::Json;
    match arguments.command {
        Command::Manifest { file } => {
            let manifest = crds::manifest::load(&file)?;
            print(&crds::manifest::to_yaml(&manifest))
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(
                shell,
                &mut Arguments::command(),
                "shard-worker",
                &mut script,
            );
            print(&String::from_utf8_lossy(&script))
        }
        Command::Man => {
            let mut command = Arguments::command();
            command.build();
            // A page for the command, then one for each of its subcommands.
            let mut page = Vec::new();
            let rendered = std::iter::once(&command)
                .chain(command.get_subcommands())
                .try_for_each(|command| clap_mangen::Man::new(command.clone()).render(&mut page));
            rendered.map_err(|error| {
                Error::Usage(format!("the man page cannot be rendered: {error}"))
            })?;
            print(&String::from_utf8_lossy(&page))
        }
        Command::Run(arguments) => block_on(arguments.threads, run_command(&arguments, json)),
        Command::Chunk(arguments) => block_on(
            arguments.threads,
            chunk::chunk_command(&arguments, json, started),
        ),
        Command::Verify(arguments) => block_on(arguments.threads, verify_command(&arguments)),
        Command::Audit(arguments) => block_on(arguments.threads, audit_command(&arguments)),
    }
}

/// Blocking threads beside those that compute: for the file system.
const IO_THREADS: usize = 8;

/// Runs a command on a runtime with few threads of its own: CPU work goes to blocking threads.
/// Those are few, too, because each keeps memory of its own.
fn block_on(threads: Option<usize>, command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let threads = threads.unwrap_or_else(resources::threads);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.clamp(1, 8))
        .max_blocking_threads(threads + IO_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Error::Usage(format!("the runtime cannot start: {error}")))?;
    let result = runtime.block_on(command);
    // Reads that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn open(arguments: &JobArguments) -> Result<Job> {
    let manifest = crds::manifest::load(&arguments.file)?;
    Job::open(manifest, arguments.output_prefix.as_deref()).await
}

async fn run_command(arguments: &RunArguments, json: bool) -> Result<Exit> {
    let stop = Stop::default();
    stop.on_signals()
        .map_err(|error| Error::Usage(format!("signal handlers cannot be installed: {error}")))?;
    tokio::select! {
        result = run_to_the_end(arguments, json, stop.clone()) => result,
        () = stop.overdue() => {
            note(json, "stopped by a signal; what was still on its way was given up, and the writer lock will expire");
            Ok(Exit::Terminated)
        }
    }
}

async fn run_to_the_end(arguments: &RunArguments, json: bool, stop: Stop) -> Result<Exit> {
    let file = match arguments.dry_run {
        true => None,
        false => ReportFile::open(arguments.report.as_deref())?,
    };
    let job = Arc::new(open(&arguments.job).await?);
    let options = run_options(arguments, job.spec.output.skip_existing)?;
    announce_output(&job, arguments.dry_run, json);
    for warning in job.warnings() {
        tracing::warn!("{warning}");
    }
    if arguments.dry_run {
        let preview = run::preview(&job, &options).await?;
        print(&dry_run_text(&job, &preview))?;
        if preview.opened || preview.failures.is_empty() {
            return Ok(Exit::Done);
        }
        for failure in &preview.failures {
            note(json, &format!("can't be made: {failure}"));
        }
        note(
            json,
            "of the shards to make, these were opened: if the others are like them, a run makes none",
        );
        return Ok(Exit::SomeFailed);
    }
    let progress = Arc::new(Progress::default());
    let shown = progress.clone().show(json);
    let result = run::run(job.clone(), options, progress, stop.clone()).await;
    shown.abort();
    let run::Ended { report, error } = result?;
    write_report(file, &report)?;
    print(&report.to_string())?;
    if let Some(error) = error {
        return Err(error);
    }
    if stop.is_requested()
        && report.shards_done + report.shards_kept + report.shards_failed + report.shards_left_out
            < report.shards
    {
        note(json, "stopped by a signal; run again to go on from here");
        return Ok(Exit::Terminated);
    }
    Ok(if stop.is_requested() {
        Exit::Terminated
    } else if report.shards_failed > 0 {
        Exit::SomeFailed
    } else {
        Exit::Done
    })
}

fn run_options(arguments: &RunArguments, skip_existing: bool) -> Result<RunOptions> {
    let glob = match &arguments.select {
        Some(pattern) => {
            // A pattern without a folder matches file names at any depth, as in .gitignore.
            let anchored = if pattern.contains('/') {
                pattern.clone()
            } else {
                format!("**/{pattern}")
            };
            let glob = GlobBuilder::new(&anchored).literal_separator(true).build();
            Some(
                glob.map_err(|error| Error::Usage(format!("--select: {error}")))?
                    .compile_matcher(),
            )
        }
        None => None,
    };
    Ok(RunOptions {
        skip_existing: skip_existing && !arguments.no_skip_existing,
        selection: Selection {
            glob,
            max_shards: arguments.max_shards,
        },
        memory: arguments.memory.unwrap_or_else(resources::memory),
        threads: arguments.threads.unwrap_or_else(resources::threads),
    })
}

fn announce_output(job: &Job, dry_run: bool, json: bool) {
    if job.output_prefix.origin == OutputOrigin::Timestamped && !dry_run {
        let text = format!(
            "note: no output prefix was named, so this run writes to a new one:\n\n    {}\n\nName one with --output-prefix or spec.output.prefix to resume it.\n",
            job.output_prefix.uri
        );
        note(json, &text);
    }
}

fn dry_run_text(job: &Job, preview: &run::planning::Preview) -> String {
    let declared = job.spec.output.prefix.as_deref().unwrap_or("(none)");
    let sidecar = job
        .spec
        .dataset
        .sidecar_prefix
        .as_deref()
        .unwrap_or("(none)");
    let origin = match job.output_prefix.origin {
        OutputOrigin::CommandLine => "--output-prefix",
        OutputOrigin::Manifest => "spec.output.prefix",
        OutputOrigin::Timestamped => "made up: nothing names an output prefix",
    };
    let columns: Vec<String> = job
        .declared
        .iter()
        .map(|field| {
            format!(
                "{}: {}",
                field.name(),
                crate::arrow_types::spell(field.data_type())
            )
        })
        .collect();
    let side_inputs: Vec<&str> = job
        .lookups
        .iter()
        .map(|lookup| lookup.uri())
        .chain(job.siblings.iter().map(|sibling| sibling.store.uri()))
        .collect();
    format!(
        "job               {}\ndigest            {}\nmain              {}\nsidecar prefix    {sidecar}\ndeclared output   {declared}\neffective output  {} ({origin})\nside inputs       {}\ncolumns           {}\nshards            {} in main, {} bytes; {} other objects skipped\nto do             {} to make, {} to make again, {} in place, {} in place but not in a manifest (their footers decide)\nonly footers were read, and nothing was written\n",
        job.name,
        job.digest,
        job.main.uri(),
        job.output_prefix.uri,
        side_inputs.join(", "),
        columns.join("\n                  "),
        preview.shards,
        preview.bytes,
        preview.skipped,
        preview.to_make,
        preview.to_redo,
        preview.vouched,
        preview.unvouched,
    )
}

async fn verify_command(arguments: &VerifyArguments) -> Result<Exit> {
    let file = ReportFile::open(arguments.report.as_deref())?;
    let job = open_for_reading(&arguments.job).await?;
    let options = VerifyOptions {
        samples: if arguments.all {
            None
        } else {
            Some(arguments.samples)
        },
        deep: arguments.deep,
        threads: arguments.threads.unwrap_or_else(resources::threads),
        memory: arguments.memory.unwrap_or_else(resources::memory),
    };
    let report = verify::verify(Arc::new(job), options).await?;
    write_report(file, &report)?;
    print(&report.to_string())?;
    Ok(if report.is_ok() {
        Exit::Done
    } else {
        Exit::NotVerified
    })
}

async fn audit_command(arguments: &AuditArguments) -> Result<Exit> {
    let file = ReportFile::open(arguments.report.as_deref())?;
    let job = open_for_reading(&arguments.job).await?;
    let options = AuditOptions {
        threads: arguments.threads.unwrap_or_else(resources::threads),
        memory: arguments.memory.unwrap_or_else(resources::memory),
    };
    let report = audit::audit(Arc::new(job), options).await?;
    write_report(file, &report)?;
    print(&report.to_string())?;
    Ok(if report.failures.is_empty() {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

/// For commands that look at an output: it must have been named.
async fn open_for_reading(arguments: &JobArguments) -> Result<Job> {
    let job = open(arguments).await?;
    if job.output_prefix.origin == OutputOrigin::Timestamped {
        return Err(Error::Usage(
            "which output? name it with --output-prefix or spec.output.prefix".to_owned(),
        ));
    }
    Ok(job)
}

fn write_report(file: Option<ReportFile>, report: &impl Serialize) -> Result<()> {
    file.map_or(Ok(()), |file| file.write(report))
}

/// Prints to standard output; a reader that has gone away is no error.
fn print(text: &str) -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Usage(format!("standard output: {error}")))
        }
        _ => Ok(Exit::Done),
    }
}
