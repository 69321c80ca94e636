//! Changes of the CustomResourceDefinition under a running operator.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::place::{Place, eventually};
use crate::pods::PodRunner;
use crate::sidecar_jobs::is_true;

const NAME: &str = "sidecarjobs.sidecarjob.dev";

/// Puts a definition in the place of the one that is there, and waits until it is served.
async fn install(place: &Place, definition: &Value) {
    let definitions: Api<CustomResourceDefinition> = Api::all(place.client.clone());
    let mut definition = definition.clone();
    let current = definitions.get(NAME).await.unwrap();
    definition["metadata"]["resourceVersion"] = json!(current.metadata.resource_version);
    let definition = serde_json::from_value(definition).unwrap();
    definitions
        .replace(NAME, &PostParams::default(), &definition)
        .await
        .unwrap();
}

fn ours() -> Value {
    json!(crds::definition::custom_resource_definition())
}

/// Any number or text where only a number is right.
fn wider() -> Value {
    let mut definition = ours();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let canary = &mut schema["properties"]["spec"]["properties"]["canary"];
    canary["properties"]["shards"] = json!({"x-kubernetes-int-or-string": true});
    definition
}

pub async fn create_raw(place: &Place, object: &Value) {
    let resource = ApiResource {
        group: crds::GROUP.to_owned(),
        version: crds::VERSION.to_owned(),
        api_version: format!("{}/{}", crds::GROUP, crds::VERSION),
        kind: "SidecarJob".to_owned(),
        plural: "sidecarjobs".to_owned(),
    };
    let objects: Api<DynamicObject> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &resource);
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    // The API server serves a new schema a moment after it has taken it.
    eventually("the object is taken", async || {
        objects.create(&PostParams::default(), &object).await.ok()
    })
    .await;
}

/// Does something while the API server takes what this operator can't read.
pub async fn with_wider_definition(place: &Place, work: impl AsyncFnOnce()) {
    install(place, &wider()).await;
    work().await;
    install(place, &ours()).await;
    // Served again when a text is refused.
    let probe = place.job("probe", std::path::Path::new("/none"), &json!({}));
    let mut probe = json!(probe);
    probe["spec"]["canary"] = json!({"shards": "a few"});
    eventually("the definition is back", async || {
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let objects: Api<DynamicObject> = Api::namespaced_with(
            place.client.clone(),
            &place.namespace,
            &ApiResource::erase::<crds::SidecarJob>(&()),
        );
        let object: DynamicObject = serde_json::from_value(probe.clone()).unwrap();
        objects.create(&parameters, &object).await.err().map(|_| ())
    })
    .await;
}

#[tokio::test]
async fn the_definition_is_upgraded_in_place_under_a_running_job() {
    let Some(place) = Place::new("upgrade").await else {
        return;
    };
    let root = place.dataset("d", 16);
    let operator = Operator::begin(&place).await;
    let pods = PodRunner::limited(&place, 1);
    place
        .create(&place.job("photos", &root, &json!({"canary": {"shards": 1}})))
        .await;
    place.wait_until_under_way("photos").await;
    let before = place.object("photos").await;

    // A later definition has more fields; the operator keeps working with the ones it knows.
    let mut later = ours();
    let schema = &mut later["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &mut schema["properties"]["spec"]["properties"];
    spec["later"] = json!({"type": "string", "maxLength": 8});
    install(&place, &later).await;
    eventually("the new field is kept", async || {
        let patch = json!({"spec": {"later": "words"}});
        let objects: Api<DynamicObject> = Api::namespaced_with(
            place.client.clone(),
            &place.namespace,
            &ApiResource::erase::<crds::SidecarJob>(&()),
        );
        let parameters = PatchParams::default();
        let patched = objects
            .patch("photos", &parameters, &Patch::Merge(&patch))
            .await
            .unwrap();
        (patched.data["spec"]["later"] == "words").then_some(())
    })
    .await;
    pods.set_limit(4);
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    let run = |object: &crds::SidecarJob| {
        let status = object.status.clone().unwrap();
        status.run.unwrap().name
    };
    assert_eq!(
        run(&object),
        run(&before),
        "a field that means nothing here begins no new run"
    );
    install(&place, &ours()).await;
    operator.wait_for("leader").await;
}
