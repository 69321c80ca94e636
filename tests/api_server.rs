//! What a real API server says about the CustomResourceDefinition and about manifests, and
//! that the command line says the same.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crds::{SidecarJob, definition, manifest};
use harness::cluster::Cluster;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::api::{Api, GetParams, Patch, PatchParams, PostParams};
use kube::core::{Message, Request, Rule};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

#[path = "api_server/cases.rs"]
mod cases;

use cases::{MISSHAPEN, cases};

fn base_spec() -> Value {
    json!({
        "dataset": {"mainPrefix": "s3://bucket/main/", "keyColumn": "key"},
        "columns": [{"name": "c", "type": "int64"}],
        "pipeline": [{"extractScaffold": {}}],
    })
}

/// Rules as (path in the schema, message).
fn rules_of(schema: &JSONSchemaProps, path: &str, found: &mut BTreeSet<(String, String)>) {
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        found.insert((path.to_owned(), rule.message.clone().unwrap_or_default()));
    }
    for (name, property) in schema.properties.iter().flatten() {
        let separator = if path.is_empty() { "" } else { "." };
        rules_of(property, &format!("{path}{separator}{name}"), found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        rules_of(items, &format!("{path}[]"), found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        rules_of(values, &format!("{path}.NAME"), found);
    }
}

fn message_of(rule: &Rule) -> &str {
    match &rule.message {
        Some(Message::Message(message)) => message,
        _ => panic!("a rule without a message: {}", rule.rule),
    }
}

fn lay_over(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (name, value) in above {
                lay_over(below.entry(name).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

/// A whole manifest from what is laid over [`base_spec`].
fn job(changes: &str) -> Value {
    let mut spec = base_spec();
    lay_over(&mut spec, serde_yaml::from_str(changes).unwrap());
    json!({
        "apiVersion": "sidecarjob.dev/v1alpha1",
        "kind": "SidecarJob",
        "metadata": {"name": "case", "namespace": "default"},
        "spec": spec,
    })
}

/// What the command line says, as one text; empty if the manifest is good.
fn local_verdict(job: &Value) -> String {
    match manifest::validate(job.clone()) {
        Ok(_) => String::new(),
        Err(violations) => violations
            .iter()
            .map(|violation| format!("{violation}\n"))
            .collect(),
    }
}

#[test]
fn every_rule_has_a_case() {
    let mut found = BTreeSet::new();
    rules_of(&definition::schema(), "", &mut found);
    let covered: BTreeSet<(String, String)> = cases()
        .iter()
        .map(|case| (case.path.to_owned(), message_of(&case.rule).to_owned()))
        .collect();
    assert_eq!(
        found, covered,
        "each rule of the definition needs a case, and the reverse"
    );
}

#[test]
fn the_command_line_keeps_every_rule() {
    for case in cases() {
        let verdict = local_verdict(&job(case.good));
        assert_eq!(verdict, "", "{}: {}", case.path, case.good);
        let verdict = local_verdict(&job(case.bad));
        assert!(
            verdict.contains(message_of(&case.rule)),
            "{}: {verdict}",
            case.path
        );
    }
    for changes in MISSHAPEN {
        assert_ne!(local_verdict(&job(changes)), "", "{changes}");
    }
}

/// One server for all, since starting it takes longer than everything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_agrees() {
    let Some(cluster) = Cluster::api_server() else {
        return;
    };
    let client = cluster.client().await.unwrap();
    install_definition(&client).await;
    wait_until_served(&client).await;
    check_rules(&client).await;
    check_examples(&client).await;
    check_status_and_columns(&client).await;
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

async fn install_definition(client: &Client) {
    let text = std::fs::read_to_string(repository().join("crds/sidecarjobs.yaml")).unwrap();
    let definition: CustomResourceDefinition = serde_yaml::from_str(&text).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap_or_else(|error| panic!("the definition is refused: {error}"));
    // The server says so here if the schema is not structural.
    for _ in 0..300 {
        let stored = definitions.get("sidecarjobs.sidecarjob.dev").await.unwrap();
        let conditions = stored
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        for condition in &conditions {
            assert_ne!(
                condition.type_, "NonStructuralSchema",
                "{:?}",
                condition.message
            );
        }
        if conditions
            .iter()
            .any(|one| one.type_ == "Established" && one.status == "True")
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the definition is not established");
}

async fn wait_until_served(client: &Client) {
    for _ in 0..300 {
        // A little after it is established, each server learns of the new resource.
        if dry_run(client, &job("{}")).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "SidecarJobs are not served: {}",
        dry_run(client, &job("{}")).await
    );
}

/// What the server would say to `kubectl apply`; empty if it would accept.
async fn dry_run(client: &Client, job: &Value) -> String {
    let url = SidecarJob::url_path(&(), Some("default"));
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let body = serde_json::to_vec(job).unwrap();
    let mut request = Request::new(url).create(&parameters, body).unwrap();
    // As kubectl asks for, which has unknown fields refused instead of dropped.
    let uri = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = uri.parse().unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

async fn check_rules(client: &Client) {
    for case in cases() {
        let answer = dry_run(client, &job(case.good)).await;
        assert_eq!(answer, "", "{}: {}", case.path, case.good);
        let answer = dry_run(client, &job(case.bad)).await;
        assert!(
            answer.contains(message_of(&case.rule)),
            "{}: {answer}",
            case.path
        );
    }
    for changes in MISSHAPEN {
        assert_ne!(dry_run(client, &job(changes)).await, "", "{changes}");
    }
}

async fn check_examples(client: &Client) {
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut example: Value = serde_yaml::from_str(&text).unwrap();
            example["metadata"]["namespace"] = json!("default");
            assert_eq!(dry_run(client, &example).await, "", "{}", path.display());
        }
    }
}

async fn check_status_and_columns(client: &Client) {
    let jobs: Api<SidecarJob> = Api::namespaced(client.clone(), "default");
    let new: SidecarJob = serde_json::from_value(job("{}")).unwrap();
    let created = jobs.create(&PostParams::default(), &new).await.unwrap();
    let generation = created
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    assert_eq!(
        generation,
        Some(-1),
        "no tool may take a new job for finished"
    );
    assert_eq!(
        created.spec,
        manifest::validate(job("{}")).unwrap().spec,
        "defaults are the same on both sides"
    );

    let status = json!({"status": {
        "phase": "Running",
        "message": "half way",
        "output": "s3://bucket/out/",
        "run": {"name": "r1"},
        "shards": {"total": 50000, "done": 12034, "failed": 3, "progress": "12034/50000"},
        "rates": {"rowsPerHour": 9876543},
        "workers": {"desired": 40, "ready": 38, "summary": "38/40"},
        "rows": {"match": "98.2%"},
    }});
    let parameters = PatchParams::default();
    let patched = jobs
        .patch_status(&created.name_any(), &parameters, &Patch::Merge(&status))
        .await
        .unwrap();
    let generation = patched.status.and_then(|status| status.observed_generation);
    assert_eq!(generation, Some(-1), "a patch of other fields leaves it");

    let mut request = Request::new(jobs.resource_url())
        .get("case", &GetParams::default())
        .unwrap();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        .parse()
        .unwrap();
    request.headers_mut().insert("accept", accept);
    let table: Value = client.request(request).await.unwrap();
    let titles: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        titles,
        [
            "Name", "Phase", "Shards", "Rows/h", "Workers", "Match", "Failed", "Age", "Message",
            "Run", "Output"
        ]
    );
    let mut cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    cells.remove(7); // the age
    assert_eq!(
        Value::Array(cells),
        json!([
            "case",
            "Running",
            "12034/50000",
            9_876_543,
            "38/40",
            "98.2%",
            3,
            "half way",
            "r1",
            "s3://bucket/out/"
        ])
    );
}
