//! The command line, and the same as variables of the environment.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::Parser;
use rules::model::Settings;

use crate::identity::{AllowedEndpoint, OwnPrefix};
use crate::telemetry::LogFormat;

/// Runs SidecarJobs on a Kubernetes cluster.
///
/// Several replicas may run; one is at work, the others stand by. The cluster is the one that
/// the process runs in, or that KUBECONFIG names. Access to S3 is that of each SidecarJob.
#[derive(Clone, Debug, Parser)]
#[command(name = "sidecarjob-operator", version, max_term_width = 100)]
pub struct Arguments {
    /// Namespaces to work in; then Roles there are enough. Absent: all, which takes a ClusterRole
    #[arg(
        long = "namespace",
        env = "SIDECARJOB_NAMESPACES",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    pub namespaces: Vec<String>,

    /// Image of the workers of SidecarJobs that name none
    #[arg(long, env = "SIDECARJOB_WORKER_IMAGE", value_name = "IMAGE")]
    pub worker_image: String,

    /// Prefix (s3://BUCKET/PATH/) for which the operator may use its own S3 identity when a
    /// SidecarJob of this namespace has none; repeatable
    #[arg(
        long = "own-identity-prefix",
        env = "SIDECARJOB_OWN_IDENTITY_PREFIXES",
        value_name = "NAMESPACE=PREFIX",
        value_delimiter = ','
    )]
    pub own_identity_prefixes: Vec<OwnPrefix>,

    /// S3 service, beside AWS and the operator's own, that a SidecarJob may name:
    /// SCHEME://HOST[:PORT], where HOST may begin with *. and PORT may be *; or * for any. Loopback
    /// and link-local addresses are allowed by name only; repeatable
    #[arg(
        long = "allow-endpoint",
        env = "SIDECARJOB_ALLOW_ENDPOINTS",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub allowed_endpoints: Vec<AllowedEndpoint>,

    /// Variable that every worker gets; repeatable
    #[arg(
        long = "worker-env",
        env = "SIDECARJOB_WORKER_ENV",
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        value_parser = parse_variable
    )]
    pub worker_environment: Vec<(String, String)>,

    /// Key of a label that is copied from a SidecarJob to its Jobs and pods; repeatable
    #[arg(
        long = "copy-label",
        env = "SIDECARJOB_COPY_LABELS",
        value_name = "KEY",
        value_delimiter = ','
    )]
    pub copied_labels: Vec<String>,

    /// SidecarJobs that are looked at at one time
    #[arg(
        long,
        env = "SIDECARJOB_CONCURRENCY",
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    pub concurrency: u32,

    /// Seconds that a work item should take
    #[arg(
        long,
        env = "SIDECARJOB_ITEM_SECONDS",
        value_name = "SECONDS",
        default_value_t = 180,
        value_parser = clap::value_parser!(u32).range(1..=3600)
    )]
    pub item_seconds: u32,

    /// Most work items of a Job
    #[arg(
        long,
        env = "SIDECARJOB_ITEMS_PER_JOB",
        value_name = "N",
        default_value_t = 2000,
        value_parser = clap::value_parser!(u32).range(1..=5000)
    )]
    pub items_per_job: u32,

    /// Seconds between two writes of speed and counters to a status
    #[arg(
        long,
        env = "SIDECARJOB_LIVE_STATUS_SECONDS",
        value_name = "SECONDS",
        default_value_t = 15,
        value_parser = clap::value_parser!(u32).range(1..=600)
    )]
    pub live_status_seconds: u32,

    /// Seconds over which speed is measured, and at least between two changes of the number of
    /// workers
    #[arg(
        long,
        env = "SIDECARJOB_WINDOW_SECONDS",
        value_name = "SECONDS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(5..=3600)
    )]
    pub window_seconds: u32,

    /// Seconds between two looks at the reports of workers
    #[arg(
        long,
        env = "SIDECARJOB_FOLLOW_SECONDS",
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=600)
    )]
    pub follow_seconds: u32,

    /// Seconds after which a worker that runs and reports nothing is taken for hung, and replaced
    #[arg(
        long,
        env = "SIDECARJOB_SILENT_SECONDS",
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u32).range(30..=86400)
    )]
    pub silent_seconds: u32,

    /// Where /healthz, /readyz and /metrics are served
    #[arg(
        long,
        env = "SIDECARJOB_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:8080"
    )]
    pub listen: SocketAddr,

    /// Namespace of the Lease by which replicas agree on a leader. Absent: that of the process
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub lease_namespace: Option<String>,

    /// Name of that Lease
    #[arg(
        long,
        env = "SIDECARJOB_LEASE_NAME",
        value_name = "NAME",
        default_value = "sidecarjob-operator"
    )]
    pub lease_name: String,

    /// Name of this replica in the Lease and in events. Absent: the host's
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub replica: Option<String>,

    /// How log notes are written
    #[arg(
        long,
        env = "SIDECARJOB_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "json"
    )]
    pub log_format: LogFormat,

    /// Which notes are logged: error, warn, info, debug or trace, also by module
    #[arg(
        long,
        env = "SIDECARJOB_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log_level: String,
}

impl Arguments {
    /// What decisions are told of it.
    pub fn settings(&self) -> Settings {
        Settings {
            worker_image: self.worker_image.clone(),
            copied_labels: self.copied_labels.clone(),
            worker_environment: self
                .worker_environment
                .iter()
                .cloned()
                .collect::<BTreeMap<_, _>>(),
            item_seconds: f64::from(self.item_seconds),
            items_per_job: self.items_per_job,
            live_status_seconds: i64::from(self.live_status_seconds),
            window_seconds: i64::from(self.window_seconds),
            silent_seconds: i64::from(self.silent_seconds),
        }
    }
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let is_word = |name: &str| {
        let mut letters = name.bytes();
        letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
    };
    match text.split_once('=') {
        Some((name, value)) if is_word(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?}: expected NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn lists_are_separated_by_commas_or_repeated() {
        let parse = |words: &[&str]| {
            Arguments::try_parse_from([&["operator", "--worker-image", "i"], words].concat())
        };
        let parsed = parse(&[
            "--namespace=a,b",
            "--namespace=c",
            "--worker-env=A=1",
            "--worker-env=B=x=y",
        ])
        .unwrap();
        assert_eq!(parsed.namespaces, ["a", "b", "c"]);
        let environment = parsed.settings().worker_environment;
        assert_eq!(environment["A"], "1");
        assert_eq!(environment["B"], "x=y");
        assert!(parse(&["--worker-env=1A=x"]).is_err());
        assert!(parse(&["--worker-env=A"]).is_err());
        let both = "--own-identity-prefix=a=s3://x/,b=s3://y/";
        assert_eq!(parse(&[both]).unwrap().own_identity_prefixes.len(), 2);
        assert!(parse(&["--own-identity-prefix=s3://x/"]).is_err());
        assert!(parse(&["--allow-endpoint=minio:9000"]).is_err());
    }
}
