//! What a run goes by from its beginning to its end: another release of the operator, another
//! default image, or a spec that has changed meanwhile.

use k8s_openapi::jiff::SignedDuration;
use rules::model::{Action, Decision, SealFacts, SealTotals};
use serde_json::json;

use crate::scene::{OUTPUT, Scene, condition, events};

/// A digest as this release would never make it.
const OTHER_DIGEST: &str = "ffffffffffff0000";

const POLICIES: [&str; 3] = ["Reject", "Rerun", "NewPrefix"];

/// What the status would be if another release had written it, with another digest, and another
/// default image had been installed since.
fn upgrade(scene: &mut Scene) {
    if scene.object.spec.on_spec_change == crds::OnSpecChange::NewPrefix {
        let status = scene.object.status.as_mut().expect("it is there");
        status.output = Some(format!("{OUTPUT}run=ffffffffffff/"));
    }
    let run = scene
        .object
        .status
        .as_mut()
        .expect("it is there")
        .run
        .as_mut()
        .expect("it is there");
    run.pipeline_digest = Some(OTHER_DIGEST.to_owned());
    scene.settings.worker_image = "worker:2".to_owned();
}

/// The same of a release that kept nothing with its runs.
fn upgrade_from_the_first(scene: &mut Scene) {
    upgrade(scene);
    let run = scene
        .object
        .status
        .as_mut()
        .expect("it is there")
        .run
        .as_mut()
        .expect("it is there");
    run.spec_hash = None;
    run.image = None;
    run.main_prefix = None;
    run.storage = None;
    run.looks_up = None;
}

fn ended(changes: serde_json::Value) -> Scene {
    let mut scene = Scene::planned(0, changes);
    scene.facts().seal = SealFacts::Sealed(SealTotals::default());
    scene.step();
    scene.step();
    scene.facts = None;
    scene.wait(60);
    scene
}

/// Image and arguments of the Job that is started.
fn started(decision: &Decision) -> Option<(String, Vec<String>)> {
    decision.actions.iter().find_map(|action| match action {
        Action::Start { job, .. } => {
            let template = &job.spec.as_ref()?.template;
            let container = template.spec.as_ref()?.containers.first()?.clone();
            Some((container.image?, container.args?))
        }
        _ => None,
    })
}

#[test]
fn a_run_lives_through_an_upgrade() {
    for policy in POLICIES {
        for upgrade in [upgrade, upgrade_from_the_first] {
            let mut scene = Scene::planned(100, json!({"onSpecChange": policy}));
            scene.act();
            scene.step();
            upgrade(&mut scene);
            let before = scene.status().clone();
            let decision = scene.step();
            assert_eq!(scene.actions(&decision), Vec::<String>::new(), "{policy}");
            assert_eq!(events(&decision), Vec::<&str>::new(), "{policy}");
            assert_eq!(scene.status().conditions, before.conditions);
            // It holds what it held, for the digest that its files have.
            let Action::Hold {
                digest,
                prefix,
                manifest,
                ..
            } = &decision.actions[0]
            else {
                panic!("{decision:?}");
            };
            assert_eq!(digest, OTHER_DIGEST);
            assert_eq!(Some(prefix), before.output.as_ref());
            assert!(manifest.is_some());

            // What is left to do is done as it was begun.
            scene.finish(0);
            scene.step();
            scene.jobs.clear();
            scene.facts().batches[0].attempts[0].ended = 3;
            scene.lose(0, &[(75, 100)]);
            let (image, arguments) = started(&scene.act()).expect("a further attempt");
            let expected = match scene
                .status()
                .run
                .as_ref()
                .expect("it is there")
                .image
                .as_deref()
            {
                Some("worker:1") => "worker:1",
                // Nobody has kept what it was.
                _ => "worker:2",
            };
            assert_eq!(image, expected);
            let digest = arguments.iter().position(|found| found == "--digest");
            assert_eq!(arguments[digest.expect("it is there") + 1], OTHER_DIGEST);
        }
    }
}

#[test]
fn the_image_of_a_run_is_that_with_which_it_was_planned() {
    let mut scene = Scene::planned(100, json!({}));
    scene.settings.worker_image = "worker:2".to_owned();
    assert_eq!(started(&scene.act()).expect("a Job").0, "worker:1");

    // One that the spec names is live, as all of spec.worker.
    let mut scene = Scene::planned(100, json!({"worker": {"image": "mine:1"}}));
    scene.apply(json!({"worker": {"image": "mine:2"}}));
    assert_eq!(started(&scene.act()).expect("a Job").0, "mine:2");

    // The next run has the next image.
    let mut scene = ended(json!({}));
    scene.settings.worker_image = "worker:2".to_owned();
    scene.annotate("sidecarjob.dev/rerun-requested-at", "monday");
    scene.step();
    assert_eq!(
        scene.status().run.as_ref().expect("it is there").image,
        None
    );
}

/// Pods that die are not made anew for the sake of another default image.
#[test]
fn another_default_image_does_not_replace_a_job() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.jobs[0].template = Some(scene.template(0, 1));
    scene.pods.died = Some("OOMKilled (exit 137)".to_owned());
    scene.settings.worker_image = "worker:2".to_owned();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
}

#[test]
fn an_ended_run_stays_ended() {
    for policy in POLICIES {
        for upgrade in [upgrade, upgrade_from_the_first] {
            let mut scene = ended(json!({"onSpecChange": policy}));
            upgrade(&mut scene);
            let before = scene.status().clone();
            let decision = scene.step();
            // Nothing but its lock, should the process before have left it, is looked at.
            assert_eq!(scene.actions(&decision), ["Abandon"]);
            assert!(decision.events.is_empty(), "{:?}", decision.events);
            assert_eq!(scene.status().conditions, before.conditions, "{policy}");
            assert_eq!(scene.run(), before.run.expect("it is there").name);
            // Written once, and not again.
            let written = scene.status().clone();
            scene.wait(1000);
            scene.step();
            assert_eq!(*scene.status(), written);
        }
    }
}

#[test]
fn a_change_is_noticed_after_an_upgrade_as_before() {
    for upgrade in [upgrade, upgrade_from_the_first] {
        let mut scene = ended(json!({}));
        upgrade(&mut scene);
        scene.step();
        scene.apply(json!({"dataset": {"sources": {"default": "agency"}}}));
        scene.step();
        let ready = condition(scene.status(), "Ready");
        assert_eq!(ready.as_deref(), Some("False SpecChangedAfterStart"));
        // One that was refused before the upgrade stays refused.
        upgrade(&mut scene);
        scene.step();
        let ready = condition(scene.status(), "Ready");
        assert_eq!(ready.as_deref(), Some("False SpecChangedAfterStart"));
    }
}

#[test]
fn what_is_not_planned_yet_begins_anew_with_the_new_release() {
    let mut scene = Scene::held(json!({}));
    let run = scene.run();
    upgrade(&mut scene);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Release"]);
    scene.facts = None;
    scene.wait(1);
    scene.step();
    assert_ne!(scene.run(), run);
    let digest = scene
        .status()
        .run
        .clone()
        .expect("it is there")
        .pipeline_digest;
    assert_ne!(digest.as_deref(), Some(OTHER_DIGEST));
}

#[test]
fn to_write_the_same_in_other_words_is_no_change() {
    let mut scene = ended(json!({"onSpecChange": "Rerun"}));
    let run = scene.run();
    scene.apply(json!({"dataset": {"mainPrefix": "s3://bucket/main/"}}));
    scene.step();
    assert_eq!(scene.run(), run);
}

/// Names of runs tell their order, whatever the clock of whoever leads.
#[test]
fn a_run_comes_after_the_one_before_though_the_clock_is_behind() {
    let mut scene = ended(json!({}));
    let mut last = scene.run();
    scene.now -= SignedDuration::from_hours(2);
    for token in ["monday", "tuesday"] {
        scene.annotate("sidecarjob.dev/rerun-requested-at", token);
        scene.step();
        let run = scene.run();
        assert!(run > last, "{run} after {last}");
        last = run;
        let end = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(scene.now);
        let status = scene.object.status.as_mut().expect("it is there");
        status.run.as_mut().expect("it is there").finished_at = Some(end);
    }
}

/// A spec without the join that the run does.
fn without_join() -> serde_json::Value {
    json!({"pipeline": [{"extractScaffold": {}}], "columns": []})
}

#[test]
fn a_run_is_judged_by_the_spec_that_it_began_with() {
    let canary = json!({"canary": {"shards": 6, "minMatchRate": 0.99}});
    let changes = [
        without_join(),
        json!({"canary": {"minMatchRate": null}}),
        json!({"canary": {"minMatchRate": 0.1, "shards": 0}}),
    ];
    for change in changes {
        let mut scene = Scene::planned(100, canary.clone());
        scene.apply(change.clone());
        let decision = scene.act();
        let first = &scene.actions(&decision)[0];
        assert!(first.starts_with("Start 0/1 [0-1 "), "{change}: {first}");
        scene.finish(0);
        scene.step();
        let judged = scene.status().canary.clone().expect("it is there");
        assert_eq!(judged.passed, Some(false), "{change}");
        assert!(judged.match_rate.is_some(), "{change}");
    }
}

#[test]
fn the_match_share_stays_that_of_the_run() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.finish(0);
    scene.apply(without_join());
    scene.step();
    let rows = scene.status().rows.clone().expect("it is there");
    assert!(rows.looked_up > 0 && rows.match_share.is_some(), "{rows:?}");
}

#[test]
fn operator_and_workers_of_a_run_stay_with_one_endpoint() {
    let storage = |endpoint: &str, secret: &str| {
        json!({"storage": {
            "endpoint": endpoint, "credentialsSecretRef": {"name": secret},
        }})
    };
    let mut scene = Scene::planned(100, storage("http://first", "keys"));
    scene.apply(storage("http://second", "others"));
    let decision = scene.act();
    let stalled = condition(scene.status(), "Stalled");
    assert_eq!(stalled.as_deref(), Some("True SpecChangedAfterStart"));
    let found = scene.status().conditions.iter();
    let message = found.into_iter().find(|found| found.type_ == "Stalled");
    assert!(
        message
            .expect("it is there")
            .message
            .contains("spec.storage")
    );
    let Some(Action::Start { job, .. }) = decision.actions.last() else {
        panic!("{decision:?}");
    };
    let template = serde_json::to_value(&job.spec.as_ref().expect("it is there").template)
        .expect("it is there");
    let env = &template["spec"]["containers"][0]["env"];
    let variable = |name: &str| {
        let all = env.as_array().expect("it is there").iter();
        all.into_iter().find(|found| found["name"] == name).cloned()
    };
    assert_eq!(
        variable("AWS_ENDPOINT_URL_S3").expect("it is there")["value"],
        "http://first"
    );
    // Credentials may be exchanged at any time.
    let key = variable("AWS_ACCESS_KEY_ID").expect("it is there");
    assert_eq!(key["valueFrom"]["secretKeyRef"]["name"], "others");
    let operators = rules::model::frozen::storage(&scene.object);
    assert_eq!(operators.endpoint.as_deref(), Some("http://first"));

    // A manifest of the spec as it is now must not be frozen for it.
    let Action::Hold { manifest, main, .. } = &decision.actions[0] else {
        panic!("{decision:?}");
    };
    assert!(manifest.is_none());
    assert_eq!(main, "s3://bucket/main");

    // Other credentials alone are no change.
    let mut scene = Scene::planned(100, storage("http://first", "keys"));
    scene.apply(storage("http://first", "others"));
    scene.step();
    assert_eq!(condition(scene.status(), "Stalled"), None);
}

#[test]
fn an_endpoint_is_corrected_before_there_is_a_plan_or_by_another_run() {
    let mut scene = Scene::held(json!({"storage": {"endpoint": "http://wrong"}}));
    let run = scene.run();
    scene.apply(json!({"storage": {"endpoint": "http://right"}}));
    scene.step();
    scene.facts = None;
    scene.wait(1);
    scene.step();
    assert_ne!(scene.run(), run);
    let storage = scene
        .status()
        .run
        .clone()
        .expect("it is there")
        .storage
        .expect("it is there");
    assert_eq!(storage.endpoint.as_deref(), Some("http://right"));

    let rerun = json!({"storage": {"endpoint": "http://wrong"}, "onSpecChange": "Rerun"});
    let mut scene = Scene::planned(100, rerun);
    scene.apply(json!({"storage": {"endpoint": "http://right"}}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Release"]);

    // A run that has ended needs no storage.
    let mut scene = ended(json!({"onSpecChange": "Rerun"}));
    let run = scene.run();
    scene.apply(json!({"storage": {"endpoint": "http://right"}}));
    scene.step();
    assert_eq!(scene.run(), run);
}

#[test]
fn a_main_prefix_that_has_changed_is_not_read_by_the_run() {
    let mut scene = Scene::planned(100, json!({}));
    scene.apply(json!({"dataset": {"mainPrefix": "s3://bucket/other/"}}));
    let decision = scene.step();
    let Action::Hold { main, prefix, .. } = &decision.actions[0] else {
        panic!("{decision:?}");
    };
    assert_eq!(
        (main.as_str(), prefix.as_str()),
        ("s3://bucket/main", OUTPUT)
    );
    let main = rules::model::frozen::main_prefix(&scene.object);
    assert_eq!(main, "s3://bucket/main");
}
