//! Writes a status if it differs, and of it only what differs.

use crds::SidecarJobStatus;
use serde_json::{Map, Value, json};

/// The merge patch (RFC 7386) that makes `new` of `old`; `None` if they don't differ by more
/// than times. `version` is the one that the decision rests on: over any other the write is
/// refused.
///
/// # Errors
/// If a status has no form in JSON, which would be a fault of its type.
pub fn status_patch(
    old: Option<&SidecarJobStatus>,
    new: &SidecarJobStatus,
    version: &str,
) -> Result<Option<Value>, serde_json::Error> {
    let old = match old {
        Some(status) => serde_json::to_value(status)?,
        None => json!({}),
    };
    let new = serde_json::to_value(new)?;
    if without_times(&old) == without_times(&new) {
        return Ok(None);
    }
    let Some(difference) = difference(&old, &new) else {
        return Ok(None);
    };
    Ok(Some(json!({
        "metadata": {"resourceVersion": version},
        "status": difference,
    })))
}

/// What has to be merged into `old`, both objects, to have `new`.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(former) => {
                if let Some(difference) = difference(former, value) {
                    patch.insert(key.clone(), difference);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// A status without what changes when only time has passed.
fn without_times(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    if let Some(rates) = status.get_mut("rates").and_then(Value::as_object_mut) {
        rates.remove("estimatedEnd");
    }
    status
}

#[cfg(test)]
mod tests {
    use crds::{RunStatus, ShardCounts};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn condition(status: &str, seconds: i64) -> Condition {
        Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "Progressing".to_owned(),
            message: "words".to_owned(),
            last_transition_time: Time(Timestamp::from_second(seconds).unwrap()),
            observed_generation: Some(1),
        }
    }

    fn status() -> SidecarJobStatus {
        SidecarJobStatus {
            observed_generation: Some(1),
            phase: Some("Running".to_owned()),
            message: Some("words".to_owned()),
            conditions: vec![condition("Unknown", 0)],
            shards: Some(ShardCounts {
                total: 10,
                done: 1,
                ..ShardCounts::default()
            }),
            ..SidecarJobStatus::default()
        }
    }

    fn patch(old: &SidecarJobStatus, new: &SidecarJobStatus) -> Option<Value> {
        status_patch(Some(old), new, "7").unwrap()
    }

    #[test]
    fn no_difference_is_no_write_also_if_only_time_has_passed() {
        let old = status();
        assert_eq!(patch(&old, &old), None);
        let mut new = old.clone();
        new.conditions = vec![condition("Unknown", 100)];
        assert_eq!(patch(&old, &new), None);
    }

    #[test]
    fn only_what_differs_is_written_and_over_the_version_that_was_seen() {
        let old = status();
        let mut new = old.clone();
        new.shards.as_mut().unwrap().done = 2;
        new.message = None;
        new.run = Some(RunStatus {
            name: "r".to_owned(),
            ..RunStatus::default()
        });
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "status": {"shards": {"done": 2}, "message": null, "run": {"name": "r"}},
        });
        assert_eq!(patch(&old, &new), Some(expected));
    }

    #[test]
    fn lists_are_written_whole() {
        let old = status();
        let mut new = old.clone();
        new.conditions = vec![condition("True", 100)];
        let patch = patch(&old, &new).unwrap();
        assert_eq!(patch["status"].as_object().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"][0]["status"], "True");
    }

    #[test]
    fn the_first_status_is_written_whole() {
        let patch = status_patch(None, &status(), "1").unwrap().unwrap();
        assert_eq!(patch["status"]["phase"], "Running");
    }
}
