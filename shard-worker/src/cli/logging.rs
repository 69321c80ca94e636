//! Log lines on standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::arguments::LogFormat;

/// Starts logging. `RUST_LOG` wins over `--verbose`.
pub fn start(format: LogFormat, verbose: bool) {
    let default = if verbose {
        "shard_worker=debug,storage=debug,info"
    } else {
        // What the SDK tries on its way to credentials is told by the error, if none works.
        "shard_worker=info,storage=info,aws_config=error,warn"
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A log that can't be written is no reason to end: telling of it would panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .init(),
    }
}
