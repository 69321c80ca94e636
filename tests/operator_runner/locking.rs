//! The writer lock: held, waited for, lost, and found again after a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use operator::runner::RunnerError;
use rules::model::{LockFacts, PlanFacts};
use storage::state::RunId;
use storage::state::identity::named;
use storage::state::lock::{Identity, LockFile, LockState, claim, hold, release};
use storage::{AccessKey, StorageConfig, Stores};
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::controller::{Controller, pace};
use crate::everywhere;
use crate::place::{Place, write};

const WRITER: &str = "_sidecar/writer.json";

everywhere! {
    restart => a_restart_goes_on_in_the_same_epoch;
    waiting => one_of_two_waits_and_starts_by_itself;
    nested => a_prefix_inside_another_waits;
    loss => a_lock_that_is_lost_is_asked_for_again;
    swap => other_stores_go_on_with_the_lock;
    forgetting => an_object_that_goes_gives_its_lock_up;
    claiming => an_object_that_goes_while_it_takes_the_lock_gives_it_up;
    leaving => the_lock_is_kept_until_the_pods_of_an_object_have_gone;
    left => a_lock_that_was_left_at_the_end_is_given_up;
    hostile => a_lock_that_is_too_large_stops_that_run_alone;
}

async fn lock_file(place: &Place) -> LockFile {
    let (_, bytes) = place.output().read(WRITER).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

async fn a_restart_goes_on_in_the_same_epoch(place: Place) {
    let mut controller = Controller::new(&place, "a");
    assert_eq!(controller.held().await, 1);
    controller.hold();
    for _ in 0..2 {
        controller.restart().await;
        assert_eq!(controller.held().await, 1);
    }
    let file = lock_file(&place).await;
    assert_eq!(file.holder.name, "tests/a");
    assert_eq!(file.holder.instance, controller.job.uid);

    // A run that was given up is no more; the next one has another epoch.
    controller.runners.release(&controller.job.uid);
    controller.runners.release(&controller.job.uid);
    controller.restart().await;
    assert_eq!(lock_file(&place).await.state, LockState::Released);
    controller.next_run();
    assert_eq!(controller.held().await, 2);
}

async fn one_of_two_waits_and_starts_by_itself(place: Place) {
    let mut first = Controller::new(&place, "first");
    let mut second = Controller::new(&place, "second");
    assert_eq!(first.held().await, 1);
    second.hold();
    let holder = second
        .until(|facts| match &facts.lock {
            LockFacts::Waiting { holder } => Some(holder.clone()),
            _ => None,
        })
        .await;
    assert!(holder.starts_with("tests/first on "), "{holder}");
    assert!(holder.contains(&first.hold.run), "{holder}");
    let nothing = second.start(0, 1, &[(0, 1)]).await;
    assert!(
        matches!(nothing, Err(RunnerError::NotHeld { .. })),
        "{nothing:?}"
    );
    second.runners.plan(&second.job.uid);
    assert_eq!(second.facts().plan, PlanFacts::None);
    // What waits writes nothing.
    let files = place.beside().await;
    assert!(
        files.iter().all(|file| !file.contains(&second.hold.run)),
        "{files:?}"
    );
    first.released().await;
    let epoch = second
        .until(|facts| match facts.lock {
            LockFacts::Held { epoch } => Some(epoch),
            _ => None,
        })
        .await;
    assert_eq!(epoch, 2);
}

async fn a_prefix_inside_another_waits(place: Place) {
    let run = RunId::generate();
    let mut outer = Controller::new(&place, "outer");
    let mut inner = Controller::of(&place, "inner", "out/inner/", run.as_str());
    outer.held().await;
    inner.hold();
    let holder = inner
        .until(|facts| match &facts.lock {
            LockFacts::Waiting { holder } => Some(holder.clone()),
            _ => None,
        })
        .await;
    assert!(holder.starts_with("tests/outer on "), "{holder}");
    assert!(holder.contains("which writes"), "{holder}");
    outer.released().await;
    inner.held().await;
    // And the other way round.
    outer.hold();
    let holder = outer
        .until(|facts| match &facts.lock {
            LockFacts::Waiting { holder } => Some(holder.clone()),
            _ => None,
        })
        .await;
    assert!(holder.contains("tests/inner"), "{holder}");
}

async fn a_lock_that_is_lost_is_asked_for_again(place: Place) {
    place.make_main(0..3).await;
    let mut controller = Controller::new(&place, "a");
    controller.held().await;
    assert_eq!(controller.planned().await.todo, 3);
    controller.start(0, 1, &[(0, 3)]).await.unwrap();

    // Somebody takes over, as if the lock had expired.
    let ours = lock_file(&place).await;
    let other = Identity {
        holder: named("elsewhere/other", "another uid"),
        run: RunId::generate(),
        digest: "other".to_owned(),
        epoch: None,
    };
    let now = OffsetDateTime::now_utc();
    let mut theirs = claim(Some(&ours), &other, now, pace().lock_ttl);
    theirs.epoch = ours.epoch + 1;
    let theirs = hold(&theirs, now, pace().lock_ttl);
    let bytes = serde_json::to_vec(&theirs).unwrap();
    write(&*place.output(), WRITER, bytes).await;
    // The next write that has to be fenced notices; a renewal would, too.
    let mut late = Err(RunnerError::NoSuchRun { run: String::new() });
    for attempt in 2.. {
        late = controller.start(0, attempt, &[(0, 3)]).await;
        if late.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert!(matches!(late, Err(RunnerError::NotHeld { .. })), "{late:?}");
    let by = controller
        .until(|facts| match &facts.lock {
            LockFacts::Lost { by } => Some(by.clone()),
            _ => None,
        })
        .await;
    assert!(by.starts_with("elsewhere/other on "), "{by}");

    controller.hold();
    let holder = controller
        .until(|facts| match &facts.lock {
            LockFacts::Waiting { holder } => Some(holder.clone()),
            _ => None,
        })
        .await;
    assert_eq!(by, holder);
    let bytes = serde_json::to_vec(&release(&theirs, now)).unwrap();
    write(&*place.output(), WRITER, bytes).await;
    assert_eq!(controller.held().await, 3);
    // The plan is still there, and what was handed out is known.
    assert!(matches!(controller.facts().plan, PlanFacts::Made(_)));
    assert_eq!(controller.facts().batches[0].attempts[0].items, [(0, 3)]);
}

async fn other_stores_go_on_with_the_lock(place: Place) {
    place.make_main(0..2).await;
    let mut controller = Controller::new(&place, "a");
    assert_eq!(controller.held().await, 1);
    let before = lock_file(&place).await.renewed_at;
    controller.set_stores(Stores::new(place.config()));
    controller.hold();
    // Taken up through the new stores: renewed at once, in the same epoch.
    let start = std::time::Instant::now();
    while lock_file(&place).await.renewed_at == before {
        assert!(start.elapsed().as_secs() < 60, "the lock is not renewed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(controller.held().await, 1);
    assert_eq!(controller.planned().await.todo, 2);
    assert!(
        controller.runners.requests().put > 2,
        "requests of both are counted"
    );
}

async fn an_object_that_goes_gives_its_lock_up(place: Place) {
    let mut controller = Controller::new(&place, "a");
    controller.held().await;
    controller.runners.forget(&controller.job.uid);
    assert_eq!(controller.runners.facts(&controller.job.uid), None);
    assert!(controller.runners.uids().is_empty());
    controller.runners.forget(&controller.job.uid);
    controller.restart().await;
    assert_eq!(lock_file(&place).await.state, LockState::Released);
}

/// Waits until the lock file is in such a state.
async fn until_lock_is(place: &Place, state: LockState) {
    let start = std::time::Instant::now();
    loop {
        let found = place.output().read(WRITER).await;
        let file = found.map(|(_, bytes)| serde_json::from_slice::<LockFile>(&bytes).unwrap());
        if file.as_ref().is_ok_and(|file| file.state == state) {
            return;
        }
        assert!(start.elapsed().as_secs() < 60, "{file:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn an_object_that_goes_while_it_takes_the_lock_gives_it_up(place: Place) {
    // Somebody is about to take a prefix inside, which is waited for.
    let now = OffsetDateTime::now_utc();
    let other = Identity {
        holder: named("elsewhere/other", "another uid"),
        run: RunId::generate(),
        digest: "other".to_owned(),
        epoch: None,
    };
    let theirs = claim(None, &other, now, std::time::Duration::from_secs(600));
    let bytes = serde_json::to_vec(&theirs).unwrap();
    write(&*place.store("out/inner/"), WRITER, bytes).await;
    let mut controller = Controller::new(&place, "a");
    controller.hold();
    until_lock_is(&place, LockState::Claiming).await;
    controller.runners.forget(&controller.job.uid);
    controller.restart().await;
    assert_eq!(lock_file(&place).await.state, LockState::Released);
}

async fn the_lock_is_kept_until_the_pods_of_an_object_have_gone(place: Place) {
    let mut controller = Controller::new(&place, "a");
    controller.held().await;
    let are_gone = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(Notify::new());
    let ask = {
        let (are_gone, asked) = (Arc::clone(&are_gone), Arc::clone(&asked));
        move || {
            asked.notify_one();
            are_gone.load(Ordering::SeqCst)
        }
    };
    controller.runners.forget_after(&controller.job.uid, ask);
    assert_eq!(controller.runners.facts(&controller.job.uid), None);
    // When it is asked and asked again, nothing was given up in between.
    for _ in 0..3 {
        asked.notified().await;
    }
    assert_eq!(lock_file(&place).await.state, LockState::Held);
    are_gone.store(true, Ordering::SeqCst);
    until_lock_is(&place, LockState::Released).await;
}

async fn a_lock_that_was_left_at_the_end_is_given_up(place: Place) {
    let mut controller = Controller::new(&place, "a");
    controller.held().await;
    // The process ends, with the lock held, when the end of the run was already written.
    controller.restart().await;
    assert_eq!(lock_file(&place).await.state, LockState::Held);
    let abandon = |controller: &Controller, run: &str| {
        let (runners, job) = (&controller.runners, &controller.job);
        let stores = Arc::clone(&place.stores);
        runners.abandon(job, stores, run, &controller.hold.prefix);
        assert_eq!(controller.facts().lock, LockFacts::Released);
    };
    // That of another run is none of its affair.
    abandon(&controller, RunId::generate().as_str());
    controller.restart().await;
    assert_eq!(lock_file(&place).await.state, LockState::Held);
    let run = controller.hold.run.clone();
    abandon(&controller, &run);
    controller.restart().await;
    assert_eq!(lock_file(&place).await.state, LockState::Released);
}

async fn a_lock_that_is_too_large_stops_that_run_alone(place: Place) {
    write(&*place.output(), WRITER, vec![b' '; 1 << 20]).await;
    let mut controller = Controller::new(&place, "a");
    controller.hold();
    let (reason, message) = controller
        .until(|facts| match &facts.plan {
            PlanFacts::Refused { reason, message } => Some((reason.clone(), message.clone())),
            _ => None,
        })
        .await;
    assert_eq!(reason, "OutputUnusable");
    assert!(message.contains("no more than 65536 are read"), "{message}");
    let mut other = Controller::of(&place, "b", "elsewhere/", RunId::generate().as_str());
    other.held().await;
}

/// A bucket that isn't there is no matter of access.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket_is_told_as_such() {
    let Some(place) = Place::bucket() else {
        return;
    };
    let mut controller = Controller::new(&place, "a");
    controller.hold.prefix = "s3://no-such-bucket/out/".to_owned();
    controller.hold();
    let reason = controller
        .until(|facts| match &facts.plan {
            PlanFacts::Refused { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .await;
    assert_eq!(reason, "BucketNotFound");
}

/// Access that is refused waits for a person, and is granted without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_access_is_asked_for_again() {
    let Some(place) = Place::bucket() else {
        return;
    };
    place.make_main(0..2).await;
    let mut controller = Controller::new(&place, "a");
    controller.set_stores(Stores::new(&StorageConfig {
        access_key: Some(AccessKey {
            id: "nobody".to_owned(),
            secret: "nothing".to_owned(),
        }),
        ..place.config().clone()
    }));
    controller.hold();
    let message = controller
        .until(|facts| match &facts.plan {
            PlanFacts::Refused { reason, message } if reason == "AccessDenied" => {
                Some(message.clone())
            }
            _ => None,
        })
        .await;
    assert!(message.contains("access refused"), "{message}");
    assert!(message.contains(&place.uri("out/")), "{message}");
    controller.set_stores(Stores::new(place.config()));
    assert_eq!(controller.held().await, 1);
    assert_eq!(controller.facts().plan, PlanFacts::None);
    assert_eq!(controller.planned().await.todo, 2);
}

/// Many objects at once on one prefix: exactly one holds it at any time, and all get their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_get_their_turn() {
    let Some(place) = Place::bucket() else {
        return;
    };
    let place = Arc::new(place);
    let tasks = (0..6).map(|number| {
        let place = Arc::clone(&place);
        tokio::spawn(async move {
            let mut controller = Controller::new(&place, &format!("job-{number}"));
            let epoch = controller.held().await;
            let file = lock_file(&place).await;
            assert_eq!(file.holder.instance, controller.job.uid);
            assert_eq!(file.epoch, epoch);
            controller.released().await;
            epoch
        })
    });
    let mut epochs = futures::future::try_join_all(tasks).await.unwrap();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 6);
}
