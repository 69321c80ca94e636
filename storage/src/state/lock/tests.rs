use proptest::prelude::*;
use time::macros::datetime;

use super::super::document;
use super::*;

const START: OffsetDateTime = datetime!(2025-06-01 10:00 UTC);
const TTL: Duration = Duration::from_secs(60);

fn identity(instance: &str, epoch: Option<u64>) -> Identity {
    Identity {
        holder: Holder {
            name: "shard-worker".to_owned(),
            instance: instance.to_owned(),
            host: format!("host-of-{instance}"),
            pid: 7,
            process: None,
        },
        run: RunId::new(START, 0),
        digest: "d1".to_owned(),
        epoch,
    }
}

fn held_by(instance: &str, previous: Option<&LockFile>) -> LockFile {
    hold(
        &claim(previous, &identity(instance, None), START, TTL),
        START,
        TTL,
    )
}

#[test]
fn standings() {
    let held = held_by("them", None);
    let claiming = claim(None, &identity("them", None), START, TTL);
    let released = release(&held, START);
    let mine = held_by("me", None);
    let my_next = held_by("me", Some(&released));
    let my_released = release(&mine, START);
    let other_run = LockFile {
        run: RunId::new(START, 1),
        ..mine.clone()
    };

    let (alive, in_grace, late) = (
        START + TTL / 2,
        START + TTL + TTL / 5,
        START + TTL + TTL / 4 + TTL / 60,
    );
    let by = |file: &LockFile| Tenure::from(file);
    let free = Standing::Free;
    let newcomer = identity("me", None);
    let holder = identity("me", Some(1));

    for (name, file, me, now, expected) in [
        ("no file", None, &newcomer, alive, free.clone()),
        ("released", Some(&released), &newcomer, alive, free.clone()),
        ("released by me", Some(&my_released), &newcomer, alive, free),
        (
            "held",
            Some(&held),
            &newcomer,
            alive,
            Standing::Held(by(&held)),
        ),
        (
            "being claimed",
            Some(&claiming),
            &newcomer,
            alive,
            Standing::Held(by(&claiming)),
        ),
        (
            "just over",
            Some(&held),
            &newcomer,
            in_grace,
            Standing::Held(by(&held)),
        ),
        (
            "expired",
            Some(&held),
            &newcomer,
            late,
            Standing::Expired(by(&held)),
        ),
        (
            "claim expired",
            Some(&claiming),
            &newcomer,
            late,
            Standing::Expired(by(&claiming)),
        ),
        (
            "mine before a restart",
            Some(&mine),
            &newcomer,
            alive,
            Standing::Mine,
        ),
        (
            "mine and not taken since",
            Some(&mine),
            &newcomer,
            late,
            Standing::Mine,
        ),
        (
            "mine, of another run",
            Some(&other_run),
            &newcomer,
            alive,
            Standing::Held(by(&other_run)),
        ),
        ("holding", Some(&mine), &holder, alive, Standing::Mine),
        (
            "holding, not renewed, not taken",
            Some(&mine),
            &holder,
            late,
            Standing::Mine,
        ),
        (
            "taken over",
            Some(&held),
            &holder,
            alive,
            Standing::TakenOver(Some(by(&held))),
        ),
        (
            "taken over, expired since",
            Some(&held),
            &holder,
            late,
            Standing::TakenOver(Some(by(&held))),
        ),
        (
            "my later epoch",
            Some(&my_next),
            &holder,
            alive,
            Standing::TakenOver(Some(by(&my_next))),
        ),
        ("removed", None, &holder, alive, Standing::TakenOver(None)),
        (
            "released for me",
            Some(&my_released),
            &holder,
            alive,
            Standing::TakenOver(None),
        ),
    ] {
        assert_eq!(standing(file, me, now), expected, "{name}");
    }
}

#[test]
fn every_acquisition_has_a_new_epoch_and_a_restart_has_not() {
    let first = held_by("a", None);
    assert_eq!((first.epoch, first.state), (1, LockState::Held));
    assert_eq!(held_by("b", Some(&first)).epoch, 2);
    assert_eq!(held_by("b", Some(&release(&first, START))).epoch, 2);
    assert_eq!(held_by("a", Some(&release(&first, START))).epoch, 2);
    let later = START + TTL;
    let again = claim(Some(&first), &identity("a", None), later, TTL);
    assert_eq!(
        (again.epoch, again.acquired_at, again.renewed_at),
        (1, START, later)
    );
}

#[test]
fn renewals_keep_everything_but_the_times() {
    let claimed = claim(None, &identity("a", None), START, TTL);
    let later = START + TTL / 3;
    let renewed = renew(&claimed, later, TTL);
    let expected = LockFile {
        renewed_at: later,
        expires_at: later + TTL,
        ..claimed.clone()
    };
    assert_eq!(renewed, expected);
    assert_eq!(
        hold(&claimed, later, TTL),
        LockFile {
            state: LockState::Held,
            ..expected
        }
    );
}

#[test]
fn who_was_fenced_off_sees_that_it_lost() {
    let paused = held_by("paused", None);
    let fenced = fence_off(&paused, &identity("me", None), START + TTL * 2);
    assert_eq!((fenced.epoch, fenced.state), (2, LockState::Released));
    let me = identity("paused", Some(1));
    assert_eq!(
        standing(Some(&fenced), &me, START),
        Standing::TakenOver(None)
    );
}

#[test]
fn the_grace_is_a_quarter_of_the_time_to_live_and_bounded() {
    for (ttl, expected) in [(2, 0.5), (60, 15.0), (600, 15.0)] {
        let file = claim(None, &identity("a", None), START, Duration::from_secs(ttl));
        assert_eq!(grace(&file).as_secs_f64(), expected);
    }
    let backwards = LockFile {
        expires_at: START - TTL,
        ..held_by("a", None)
    };
    assert_eq!(grace(&backwards), Duration::ZERO);
    assert!(has_expired(&backwards, START));
}

#[test]
fn the_file_reads_back_and_other_versions_do_not() {
    let file = held_by("a", None);
    let json = document::encode("writer.json", &file).unwrap();
    assert_eq!(
        document::decode::<LockFile>("writer.json", &json).unwrap(),
        file
    );
    let text = String::from_utf8(json).unwrap();
    assert!(
        text.contains("\"expires_at\": \"2025-06-01T10:01:00Z\""),
        "{text}"
    );

    let newer = text.replace("\"version\": 1", "\"version\": 2, \"extra\": [1]");
    let error = document::decode::<LockFile>("s3://b/writer.json", newer.as_bytes()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("s3://b/writer.json has format version 2"),
        "{error}"
    );
    let more = text.replace("\"version\": 1", "\"version\": 1, \"extra\": [1]");
    assert_eq!(
        document::decode::<LockFile>("writer.json", more.as_bytes()).unwrap(),
        file
    );
}

/// What an actor of the model does next.
#[derive(Debug, Clone)]
enum Step {
    Read(usize),
    Claim(usize),
    Hold(usize),
    Renew(usize),
    Release(usize),
    Restart(usize),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let actor = 0..4_usize;
    prop_oneof![
        6 => actor.clone().prop_map(Step::Read),
        6 => actor.clone().prop_map(Step::Claim),
        3 => actor.clone().prop_map(Step::Hold),
        3 => actor.clone().prop_map(Step::Renew),
        1 => actor.clone().prop_map(Step::Release),
        1 => actor.prop_map(Step::Restart),
        4 => (0..50_u32).prop_map(Step::Wait),
    ]
}

/// Somebody who has read the register at some time and acts on what they read.
#[derive(Default)]
struct Actor {
    /// Counts restarts that made it another holder.
    life: u32,
    read: (u64, Option<LockFile>),
    held: Option<(u64, LockFile)>,
}

/// The lock file as a register with compare-and-swap: every write has a new version.
#[derive(Default)]
struct Register {
    version: u64,
    file: Option<LockFile>,
}

impl Register {
    fn swap(&mut self, expected: u64, file: LockFile) -> bool {
        let is_unchanged = self.version == expected;
        if is_unchanged {
            self.version += 1;
            self.file = Some(file);
        }
        is_unchanged
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever the interleaving of stale reads, clocks that disagree, expiries, takeovers,
    /// releases and restarts: an epoch has one holder for good, epochs only go up, and of all
    /// that believe to hold the prefix one at most sees itself confirmed.
    #[test]
    fn an_epoch_has_one_holder(
        steps in prop::collection::vec(step(), 1..120),
        skews in prop::array::uniform4(-40_i64..40),
    ) {
        let mut register = Register::default();
        let mut actors: [Actor; 4] = Default::default();
        let mut now = START;
        let mut holder_of_epoch = std::collections::HashMap::new();
        let mut last_epoch = 0;

        for step in steps {
            let index = match step {
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds.into());
                    continue;
                }
                Step::Read(index) | Step::Claim(index) | Step::Hold(index)
                | Step::Renew(index) | Step::Release(index) | Step::Restart(index) => index,
            };
            let actor = &mut actors[index];
            let clock = now + time::Duration::seconds(skews[index]);
            let instance = format!("{index}.{}", actor.life);
            let me = identity(&instance, None);
            match step {
                Step::Read(_) => actor.read = (register.version, register.file.clone()),
                Step::Claim(_) => {
                    let (version, file) = &actor.read;
                    let may = matches!(
                        standing(file.as_ref(), &me, clock),
                        Standing::Free | Standing::Mine | Standing::Expired(_)
                    );
                    let claimed = claim(file.as_ref(), &me, clock, TTL);
                    if may && register.swap(*version, claimed.clone()) {
                        actor.held = Some((register.version, claimed));
                    }
                }
                Step::Hold(_) | Step::Renew(_) | Step::Release(_) => {
                    let Some((version, file)) = actor.held.take() else { continue };
                    let next = match step {
                        Step::Hold(_) => hold(&file, clock, TTL),
                        Step::Renew(_) => renew(&file, clock, TTL),
                        _ => release(&file, clock),
                    };
                    if register.swap(version, next.clone()) && next.state != LockState::Released {
                        actor.held = Some((register.version, next));
                    }
                }
                Step::Restart(_) => {
                    actor.held = None;
                    actor.life += 1;
                }
                Step::Wait(_) => {}
            }

            if let Some(file) = &register.file {
                prop_assert!(file.epoch >= last_epoch, "epochs only go up");
                last_epoch = file.epoch;
                if file.state != LockState::Released {
                    let holder = holder_of_epoch
                        .entry(file.epoch)
                        .or_insert_with(|| file.holder.instance.clone());
                    prop_assert_eq!(&*holder, &file.holder.instance);
                }
            }
            let confirmed = actors
                .iter()
                .enumerate()
                .filter(|(index, actor)| {
                    actor.held.as_ref().is_some_and(|(_, held)| {
                        let me = identity(&format!("{index}.{}", actor.life), Some(held.epoch));
                        standing(register.file.as_ref(), &me, now) == Standing::Mine
                    })
                })
                .count();
            prop_assert!(confirmed <= 1, "{confirmed} are confirmed");
        }
    }
}
