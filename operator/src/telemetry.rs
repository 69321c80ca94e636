//! Logs: a line of JSON for each note, or plain lines for people.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a note is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// An object of JSON a line.
    #[default]
    Json,
    /// Text for people.
    Text,
}

/// A filter of log notes that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("--log-level {filter:?} can't be read: {source}")]
pub struct FilterError {
    filter: String,
    source: tracing_subscriber::filter::ParseError,
}

/// Logs to stderr from now on.
///
/// # Errors
/// If the filter can't be read.
pub fn begin(format: LogFormat, filter: &str) -> Result<(), FilterError> {
    let parsed = EnvFilter::try_new(filter).map_err(|source| FilterError {
        filter: filter.to_owned(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.init(),
    }
    Ok(())
}
