//! What a cluster says when a test fails.

use super::Cluster;
use super::component::Component;
use super::process::log_tail;

/// Prints, if it is dropped by a panic, what the cluster has to say.
#[derive(Debug)]
pub struct FailureReport<'a> {
    pub(super) cluster: &'a Cluster,
}

impl Drop for FailureReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.cluster.report());
        }
    }
}

impl Cluster {
    /// Objects, events and the ends of the logs, as a person would look them up.
    pub fn report(&self) -> String {
        let mut report = String::new();
        for arguments in [
            "get nodes -o wide",
            "get sidecarjobs --all-namespaces -o wide",
            "get jobs,pods --all-namespaces -o wide",
            "get events --all-namespaces --sort-by=.lastTimestamp",
        ] {
            let said = self.kubectl(&arguments.split(' ').collect::<Vec<_>>());
            let said = said.unwrap_or_else(|error| format!("{error:#}\n"));
            let lines: Vec<&str> = said.lines().collect();
            let end = lines[lines.len().saturating_sub(40)..].join("\n");
            report.push_str(&format!("---- kubectl {arguments}\n{end}\n"));
        }
        let Ok(own) = self.own() else {
            return report;
        };
        for &component in Component::all(own.site.size) {
            let name = component.name();
            let tail = log_tail(&own.processes.log(name), 10);
            report.push_str(&format!("---- {name}\n{tail}\n"));
        }
        report
    }
}
