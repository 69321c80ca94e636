//! The operator's process.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | told to end, and ended in order |
//! | 1 | something it can't do without is missing, or the lease was lost |
//! | 2 | the command line is wrong |
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use operator::arguments::Arguments;
use operator::{process, telemetry};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = telemetry::begin(arguments.log_format, &arguments.log_level) {
        eprintln!("sidecarjob-operator: {error}");
        return ExitCode::from(2);
    }
    match process::run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
