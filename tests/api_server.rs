//! What a real API server says about the CustomResourceDefinition and about manifests, and
//! that the command line says the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crds::{SidecarJob, definition, manifest, rules};
use harness::control_plane::ControlPlane;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, Message, Rule};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};

/// A manifest that breaks one rule, and one that just keeps it. Both are laid over
/// [`base_spec`]; lists replace lists.
struct Case {
    /// Where the rule is in the schema.
    path: &'static str,
    rule: Rule,
    good: &'static str,
    bad: &'static str,
}

fn base_spec() -> Value {
    json!({
        "dataset": {"mainPrefix": "s3://bucket/main/", "keyColumn": "key"},
        "columns": [{"name": "c", "type": "int64"}],
        "pipeline": [{"extractScaffold": {}}],
    })
}

fn cases() -> Vec<Case> {
    let case = |path, rule, good, bad| Case {
        path,
        rule,
        good,
        bad,
    };
    let mut cases = vec![
        case(
            "spec",
            rules::columns_are_not_key_or_image(),
            "columns: [{name: keys, type: string}]",
            "columns: [{name: Key, type: string}]",
        ),
        case(
            "spec",
            rules::filters_need_the_image(),
            "{dataset: {imageColumn: image}, pipeline: [{computeFilters: {filters: [luma]}}]}",
            "pipeline: [{computeFilters: {filters: [luma]}}]",
        ),
        case(
            "spec",
            rules::joined_columns_are_declared(),
            "pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [c]}}]",
            "pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [d]}}]",
        ),
        case(
            "spec",
            rules::output_apart_from_main(),
            "output: {prefix: 's3://bucket/main_sidecar'}",
            "output: {prefix: 's3://bucket/main/sidecar'}",
        ),
        case(
            "spec",
            rules::output_apart_from_sidecar(),
            "{dataset: {sidecarPrefix: 's3://bucket/side/'}, output: {prefix: 's3://bucket/side'}}",
            "{dataset: {sidecarPrefix: 's3://bucket/side/'}, output: {prefix: 's3://bucket/side/new'}}",
        ),
        case(
            "spec",
            rules::output_apart_from_join_sources(),
            "{pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [c]}}], output: {prefix: 's3://bucket/out'}}",
            "{pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [c]}}], output: {prefix: 's3://bucket/index'}}",
        ),
        case(
            "spec",
            rules::output_apart_from_merge_sources(),
            "{pipeline: [{mergeFromSidecar: {sourcePrefix: 's3://bucket/dqm'}}], output: {prefix: 's3://bucket/dqm2'}}",
            "{pipeline: [{mergeFromSidecar: {sourcePrefix: 's3://bucket/dqm/a'}}], output: {prefix: 's3://bucket/dqm'}}",
        ),
        case(
            "spec",
            rules::output_apart_from_recaption_sources(),
            "{pipeline: [{recaptionMerge: {source: 's3://bucket/texts/a.jsonl', columns: [c]}}], output: {prefix: 's3://bucket/out'}}",
            "{pipeline: [{recaptionMerge: {source: 's3://bucket/texts/a.jsonl', columns: [c]}}], output: {prefix: 's3://bucket/texts'}}",
        ),
        case(
            "spec.columns",
            rules::column_names_are_unique(),
            "columns: [{name: a, type: int64}, {name: b, type: int64}]",
            "columns: [{name: a, type: int64}, {name: A, type: int64}]",
        ),
        case(
            "spec.schemas",
            rules::built_in_types_are_not_redefined(),
            "schemas: {score_v2: [{name: a, type: int64}]}",
            "schemas: {score_v1: [{name: a, type: int64}]}",
        ),
        case(
            "spec.schemas.NAME",
            rules::field_names_are_unique(),
            "schemas: {t: [{name: a, type: int64}, {name: b, type: int64}]}",
            "schemas: {t: [{name: a, type: int64}, {name: A, type: int64}]}",
        ),
        case(
            "spec.dataset",
            rules::image_is_not_the_key(),
            "dataset: {imageColumn: image}",
            "dataset: {imageColumn: KEY}",
        ),
        case(
            "spec.dataset",
            rules::sidecar_apart_from_main(),
            "dataset: {sidecarPrefix: 's3://bucket/main_sidecar/'}",
            "dataset: {sidecarPrefix: 's3://bucket/main/sidecar/'}",
        ),
        case(
            "spec.dataset.sources",
            rules::sources_say_something(),
            "dataset: {sources: {default: a}}",
            "dataset: {sources: {}}",
        ),
        case(
            "spec.dataset.sources.markers",
            rules::markers_are_unique(),
            "dataset: {sources: {markers: [{contains: /a/, source: a}, {contains: /b/, source: a}]}}",
            "dataset: {sources: {markers: [{contains: /a/, source: a}, {contains: /a/, source: b}]}}",
        ),
        case(
            "spec.pipeline[]",
            rules::one_operation(),
            "pipeline: [{extractScaffold: {drop: [a]}}]",
            "pipeline: [{extractScaffold: {}, mergeFromSidecar: {sourcePrefix: 's3://bucket/dqm'}}]",
        ),
        case(
            "spec.storage.endpoint",
            rules::endpoint_is_a_url(),
            "storage: {endpoint: 'http://127.0.0.1:7070/'}",
            "storage: {endpoint: 'https://s3.example.com/bucket'}",
        ),
        case(
            "spec.worker.env",
            rules::environment_is_unique(),
            "worker: {env: [{name: A, value: ''}, {name: B, value: ''}]}",
            "worker: {env: [{name: A, value: '1'}, {name: A, value: '2'}]}",
        ),
    ];
    for (path, good, bad) in [
        (
            "spec.dataset.mainPrefix",
            "dataset: {mainPrefix: 's3://bucket/a b+c%2F=#/ü'}",
            "dataset: {mainPrefix: 'https://bucket/main'}",
        ),
        (
            "spec.dataset.sidecarPrefix",
            "dataset: {sidecarPrefix: demo-data/sidecar/}",
            "dataset: {sidecarPrefix: 's3://B/sidecar/'}",
        ),
        (
            "spec.output.prefix",
            "output: {prefix: 'file:///data/out'}",
            "output: {prefix: 's3://bucket/a/../b'}",
        ),
        (
            "spec.pipeline[].joinFromParquet.source",
            "pipeline: [{joinFromParquet: {source: ./index.parquet, columns: [c]}}]",
            "pipeline: [{joinFromParquet: {source: 's3://bucket/a//b', columns: [c]}}]",
        ),
        (
            "spec.pipeline[].mergeFromSidecar.sourcePrefix",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: ../scores}}]",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: 'gs://bucket/scores'}}]",
        ),
        (
            "spec.pipeline[].recaptionMerge.source",
            "pipeline: [{recaptionMerge: {source: /data/texts.jsonl, columns: [c]}}]",
            "pipeline: [{recaptionMerge: {source: 's3://', columns: [c]}}]",
        ),
    ] {
        cases.push(case(path, rules::is_a_prefix(), good, bad));
    }
    for (path, good, bad) in [
        (
            "spec.pipeline[].extractScaffold.drop",
            "pipeline: [{extractScaffold: {drop: [a, A]}}]",
            "pipeline: [{extractScaffold: {drop: [a, a]}}]",
        ),
        (
            "spec.pipeline[].joinFromParquet.columns",
            "pipeline: [{joinFromParquet: {source: i.parquet, columns: [c]}}]",
            "pipeline: [{joinFromParquet: {source: i.parquet, columns: [c, c]}}]",
        ),
        (
            "spec.pipeline[].mergeFromSidecar.columns",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: dqm, columns: [c, d]}}]",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: dqm, columns: [c, c]}}]",
        ),
        (
            "spec.pipeline[].recaptionMerge.columns",
            "pipeline: [{recaptionMerge: {source: t.jsonl, columns: [c, d]}}]",
            "pipeline: [{recaptionMerge: {source: t.jsonl, columns: [c, c]}}]",
        ),
        (
            "spec.pipeline[].computeFilters.filters",
            "{dataset: {imageColumn: i}, pipeline: [{computeFilters: {filters: [luma, clarity]}}]}",
            "{dataset: {imageColumn: i}, pipeline: [{computeFilters: {filters: [luma, luma]}}]}",
        ),
    ] {
        cases.push(case(path, rules::names_are_unique(), good, bad));
    }
    cases
}

/// Manifests whose shape or bounds are wrong.
const MISSHAPEN: [&str; 9] = [
    "columms: []",
    "columns: {a: int64}",
    "onSpecChange: rerun",
    "canary: {minMatchRate: 1.5}",
    "throughput: {maxWorkers: 0}",
    "queue: Not_A_Label",
    "pipeline: []",
    "worker: {resources: {limits: {cpu: many}}}",
    "dataset: {mainPrefix: ''}",
];

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
    let Some(control_plane) = ControlPlane::start() else {
        return;
    };
    let client = client(&control_plane).await;
    install_definition(&client).await;
    let jobs = dynamic_jobs(&client);
    wait_until_served(&jobs).await;
    check_rules(&jobs).await;
    check_examples(&jobs).await;
    check_status_and_columns(&client).await;
}

async fn client(control_plane: &ControlPlane) -> Client {
    let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
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

/// Jobs as they are, so that the server sees mistakes that the types could not hold.
fn dynamic_jobs(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        "default",
        &ApiResource::erase::<SidecarJob>(&()),
    )
}

async fn wait_until_served(jobs: &Api<DynamicObject>) {
    for _ in 0..300 {
        // A little after it is established, each server learns of the new resource.
        if dry_run(jobs, &job("{}")).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "SidecarJobs are not served: {}",
        dry_run(jobs, &job("{}")).await
    );
}

/// What the server would say to `kubectl apply`; empty if it would accept.
async fn dry_run(jobs: &Api<DynamicObject>, job: &Value) -> String {
    let object: DynamicObject = serde_json::from_value(job.clone()).unwrap();
    let parameters = PostParams {
        dry_run: true,
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PostParams::default()
    };
    match jobs.create(&parameters, &object).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

async fn check_rules(jobs: &Api<DynamicObject>) {
    for case in cases() {
        let answer = dry_run(jobs, &job(case.good)).await;
        assert_eq!(answer, "", "{}: {}", case.path, case.good);
        let answer = dry_run(jobs, &job(case.bad)).await;
        assert!(
            answer.contains(message_of(&case.rule)),
            "{}: {answer}",
            case.path
        );
    }
    for changes in MISSHAPEN {
        assert_ne!(dry_run(jobs, &job(changes)).await, "", "{changes}");
    }
}

async fn check_examples(jobs: &Api<DynamicObject>) {
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut example: Value = serde_yaml::from_str(&text).unwrap();
            example["metadata"]["namespace"] = json!("default");
            assert_eq!(dry_run(jobs, &example).await, "", "{}", path.display());
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

    let mut request = kube::core::Request::new(jobs.resource_url())
        .get("case", &kube::api::GetParams::default())
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
            "Name", "Phase", "Shards", "Rows/h", "Workers", "Match", "Failed", "Age", "Run",
            "Output", "Message"
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
            "r1",
            "s3://bucket/out/",
            "half way"
        ])
    );
}
