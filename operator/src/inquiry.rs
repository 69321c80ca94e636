//! What no watch tells, asked of the API server while Jobs stand still: why the Job controller can't
//! make pods (it says so in events alone), and why a queue holds a Job back (in its Workload).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use rules::model::{Asked, ObservedJob};
use serde_json::Value;

use crate::api_words::api_words;
use crate::events::cut;

/// An answer is good for so long.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// Events, or Workloads, of a Job that are looked at: the Job controller's are combined after ten.
const MOST: u32 = 50;

/// Seconds for which an event is news: the Job controller tells of what goes on at least as often.
const NEWS: i64 = 600;

/// Bytes that are kept of what somebody says.
const WORDS: usize = 400;

/// Versions in which queues describe what waits.
const WORKLOADS: [&str; 2] = ["v1beta2", "v1beta1"];

/// By which a Workload names its Job.
const WORKLOAD_OF: &str = "kueue.x-k8s.io/job-uid";

/// Asks, and remembers the answers for a while.
pub struct Inquiry {
    client: Client,
    answers: Mutex<HashMap<String, (Instant, Asked)>>,
}

impl std::fmt::Debug for Inquiry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Inquiry")
    }
}

impl Inquiry {
    /// Nothing was asked yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            answers: Mutex::default(),
        }
    }

    /// Asks about the Jobs of the SidecarJob `uid` that stand still, if there are any.
    pub async fn ask(&self, uid: &str, namespace: &str, jobs: &[ObservedJob]) -> Asked {
        let lacking = jobs.iter().find(|job| job.lacks_pods());
        let waiting = jobs
            .iter()
            .find(|job| job.is_live() && job.is_suspended && job.queue.is_some());
        if lacking.is_none() && waiting.is_none() {
            self.forget(uid);
            return Asked::default();
        }
        if let Some(known) = self.known(uid) {
            // Of what was answered only that which may still be so.
            return Asked {
                refused: known.refused.filter(|_| lacking.is_some()),
                queued: known.queued.filter(|_| waiting.is_some()),
            };
        }
        let mut asked = Asked::default();
        if let Some(job) = lacking {
            asked.refused = self.refused(namespace, job).await;
        }
        if let Some(job) = waiting {
            asked.queued = self.queued(namespace, job).await;
        }
        let answer = (Instant::now(), asked.clone());
        self.lock().insert(uid.to_owned(), answer);
        asked
    }

    /// The object is gone, or nothing of it stands still.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn known(&self, uid: &str) -> Option<Asked> {
        let answers = self.lock();
        let (at, asked) = answers.get(uid)?;
        (at.elapsed() < GOOD_FOR).then(|| asked.clone())
    }

    /// The latest words of the Job controller about pods that it could not make.
    async fn refused(&self, namespace: &str, job: &ObservedJob) -> Option<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let uid = &job.uid;
        let fields = format!("involvedObject.uid={uid},reason=FailedCreate");
        let parameters = ListParams::default().fields(&fields).limit(MOST);
        let events = match events.list(&parameters).await {
            Ok(events) => events.items,
            Err(error) => {
                let words = api_words(&error);
                tracing::debug!(namespace, job = job.name, "can't list events: {words}");
                return None;
            }
        };
        latest(events, Timestamp::now()).map(|words| cut(&without_pod(&words), WORDS))
    }

    /// What the Workload of a Job says of why it waits.
    async fn queued(&self, namespace: &str, job: &ObservedJob) -> Option<String> {
        let parameters = ListParams::default()
            .labels(&format!("{WORKLOAD_OF}={}", job.uid))
            .limit(MOST);
        for version in WORKLOADS {
            let kind = GroupVersionKind::gvk("kueue.x-k8s.io", version, "Workload");
            let resource = ApiResource::from_gvk_with_plural(&kind, "workloads");
            let client = self.client.clone();
            let workloads: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
            match workloads.list(&parameters).await {
                Ok(found) => {
                    let mut words = found.items.iter().filter_map(|found| waits(&found.data));
                    return words.next().map(|words| cut(&words, WORDS));
                }
                // That version isn't served.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    let words = api_words(&error);
                    tracing::debug!(namespace, job = job.name, "can't list Workloads: {words}");
                    return None;
                }
            }
        }
        None
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Asked)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The words of the latest event, if it is news.
fn latest(events: Vec<Event>, now: Timestamp) -> Option<String> {
    let time = |event: &Event| {
        let series = event.series.as_ref();
        let times = [
            series.and_then(|series| series.last_observed_time.as_ref().map(|time| time.0)),
            event.last_timestamp.as_ref().map(|time| time.0),
            event.event_time.as_ref().map(|time| time.0),
        ];
        times.into_iter().flatten().max().unwrap_or(Timestamp::MIN)
    };
    let is_news = |event: &Event| now.as_second().saturating_sub(time(event).as_second()) <= NEWS;
    let events = events.into_iter();
    let events = events.filter(|event| event.message.is_some() && is_news(event));
    events.max_by_key(time)?.message
}

/// The words without the name of the pod that was not made, which is another each time.
fn without_pod(words: &str) -> String {
    const COMBINED: &str = "(combined from similar events): ";
    let words = words.strip_prefix(COMBINED).unwrap_or(words);
    match words.split_once("pods \"") {
        Some((before, after)) => match after.split_once("\" ") {
            Some((_, rest)) => format!("{before}pods: {rest}"),
            None => words.to_owned(),
        },
        None => words.to_owned(),
    }
}

/// Why a Workload waits, by its conditions: what was taken from it, or not given to it.
fn waits(workload: &Value) -> Option<String> {
    let conditions = workload["status"]["conditions"].as_array()?;
    let message = |kind: &str, status: &str| {
        let found = conditions
            .iter()
            .find(|found| found["type"] == kind && found["status"] == status)?;
        let message = found["message"].as_str()?;
        (!message.is_empty()).then(|| message.to_owned())
    };
    // What has ended will never be let in, whatever else is said of it.
    message("Finished", "True")
        .or_else(|| message("QuotaReserved", "False"))
        .or_else(|| message("Admitted", "False"))
        .or_else(|| message("Evicted", "True"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_event_counts_and_no_pod_is_named() {
        let event = |second: i64, message: &str| -> Event {
            let at = Timestamp::from_second(second).unwrap();
            serde_json::from_value(json!({
                "metadata": {"name": "e"}, "involvedObject": {},
                "lastTimestamp": at.to_string(), "message": message,
            }))
            .unwrap()
        };
        let quota = "Error creating: pods \"photos-0-x7k2p\" is forbidden: exceeded quota: none";
        let account = "Error creating: pods \"photos-0-\" is forbidden: error looking up service \
                       account team/writer: serviceaccount \"writer\" not found";
        let events = vec![event(10, account), event(20, quota), event(5, "old")];
        let now = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(latest(events.clone(), now(900)), None, "that was long ago");
        let words = latest(events, now(30)).unwrap();
        let expected = "Error creating: pods: is forbidden: exceeded quota: none";
        assert_eq!(without_pod(&words), expected);
        assert_eq!(
            without_pod(&format!("(combined from similar events): {quota}")),
            expected
        );
        assert!(without_pod(account).ends_with("serviceaccount \"writer\" not found"));
        assert_eq!(without_pod("pods \"half"), "pods \"half");
        assert_eq!(latest(Vec::new(), now(0)), None);
    }

    #[test]
    fn a_workload_says_why_it_waits() {
        let workload = |conditions: Value| json!({"status": {"conditions": conditions}});
        let pending = json!({"type": "QuotaReserved", "status": "False", "reason": "Pending",
                             "message": "couldn't assign flavors to pod set main: 2 more needed"});
        let reserved = json!({"type": "QuotaReserved", "status": "True", "message": "reserved"});
        let evicted = json!({"type": "Evicted", "status": "True", "message": "Preempted"});
        let checked = json!({"type": "Admitted", "status": "False", "message": "a check waits"});
        let ended = json!({"type": "Finished", "status": "True", "reason": "FailedToStart",
                           "message": "it can't be started"});
        for (conditions, expected) in [
            (
                json!([evicted, pending]),
                Some("couldn't assign flavors to pod set main: 2 more needed"),
            ),
            (json!([reserved, checked]), Some("a check waits")),
            (json!([reserved, evicted]), Some("Preempted")),
            (json!([reserved, ended]), Some("it can't be started")),
            (json!([reserved]), None),
        ] {
            assert_eq!(waits(&workload(conditions)).as_deref(), expected);
        }
        assert_eq!(waits(&json!({})), None);
    }
}
