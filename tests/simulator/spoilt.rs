//! Decisions that are made worse: what the world checks must notice each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rules::build;
use rules::model::{Action, Decision, JobSpec, Observed};
use rules::names;

use crate::story::{Story, Troubles};
use crate::world::World;

/// Makes a decision worse.
pub type Spoil = fn(&Observed, &mut Decision);

/// The words with which some story of these ends, if one does.
fn complaint(spoil: Spoil, troubles: Troubles) -> String {
    for seed in 9_000..9_400 {
        let mut world = World::new(Story::new(seed, troubles));
        world.spoil = Some(spoil);
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) else {
            continue;
        };
        let words = panic.downcast_ref::<String>();
        return words.cloned().unwrap_or_default();
    }
    "all went well".to_owned()
}

fn must_be_noticed(spoil: Spoil, troubles: Troubles, words: &str) {
    let complaint = complaint(spoil, troubles);
    assert!(
        complaint.contains(words),
        "expected \"{words}\" in: {complaint}"
    );
}

#[test]
fn a_shard_with_two_workers_is_noticed() {
    let spoil: Spoil = |_, decision| {
        for action in &mut decision.actions {
            if let Action::Start { items, attempt, .. } = action
                && *attempt == 1
                && items[0].0 > 0
            {
                items[0].0 -= 1;
            }
        }
    };
    must_be_noticed(spoil, Troubles::default(), "is with two workers");
}

#[test]
fn a_second_job_of_a_batch_is_noticed() {
    let spoil: Spoil = |observed, decision| {
        let Some(facts) = &observed.run else { return };
        for batch in &facts.batches {
            let Some(last) = batch.attempts.last() else {
                continue;
            };
            let is_live = |job: &&rules::model::ObservedJob| {
                (job.batch, job.attempt) == (batch.batch, last.attempt) && job.end.is_none()
            };
            let Some(job) = observed.jobs.iter().find(is_live) else {
                continue;
            };
            let attempt = last.attempt + 1;
            let name = observed.object.metadata.name.as_deref().unwrap_or_default();
            let uid = observed.object.metadata.uid.as_deref().unwrap_or_default();
            let spec = JobSpec {
                name: names::job_name(name, uid, &job.run, batch.batch, attempt),
                run: job.run.clone(),
                batch: batch.batch,
                attempt,
                epoch: job.epoch,
                completions: job.completions,
                parallelism: 1,
                suspend: false,
                prefix: String::new(),
                has_identity: false,
                digest: String::new(),
                image: String::new(),
            };
            decision.actions.push(Action::Start {
                batch: batch.batch,
                attempt,
                items: last.items.clone(),
                epoch: job.epoch,
                tries: 0,
                job: Box::new(build::job(&observed.object, &spec, &observed.settings)),
                after: None,
            });
        }
    };
    must_be_noticed(spoil, Troubles::default(), "has two live Jobs");
}

#[test]
fn falling_counts_are_noticed() {
    let spoil: Spoil = |observed, decision| {
        let shards = decision
            .status
            .as_mut()
            .and_then(|status| status.shards.as_mut());
        if let Some(shards) = shards
            && observed.random % 2 == 0
        {
            shards.done = 0;
        }
    };
    must_be_noticed(spoil, Troubles::default(), "counts fell");
}

#[test]
fn a_status_that_changes_by_itself_is_noticed() {
    let spoil: Spoil = |observed, decision| {
        if let Some(status) = &mut decision.status {
            status.message = Some(observed.random.to_string());
        }
    };
    must_be_noticed(spoil, Troubles::default(), "no rest");
}

#[test]
fn work_after_the_end_is_noticed() {
    let spoil: Spoil = |observed, decision| {
        if observed.run.is_none() && observed.object.status.is_some() {
            decision.actions.push(Action::Seal {
                given_up: Vec::new(),
            });
        }
    };
    must_be_noticed(spoil, Troubles::default(), "no rest");
}

#[test]
fn a_run_that_is_never_sealed_is_noticed() {
    let spoil: Spoil = |_, decision| {
        let is_other = |action: &Action| !matches!(action, Action::Seal { .. });
        decision.actions.retain(is_other);
    };
    must_be_noticed(spoil, Troubles::default(), "no end");
}

#[test]
fn a_lost_lock_that_costs_tries_is_noticed() {
    let spoil: Spoil = |_, decision| {
        for action in &mut decision.actions {
            if let Action::Start { attempt, tries, .. } = action {
                *tries = *attempt - 1;
            }
        }
    };
    let troubles = Troubles {
        thefts: true,
        ..Troubles::default()
    };
    must_be_noticed(spoil, troubles, "right: \"Completed\"");
}

#[test]
fn an_action_beside_a_new_run_is_noticed() {
    let spoil: Spoil = |observed, decision| {
        if observed.object.status.is_none() {
            decision.actions.push(Action::Plan);
        }
    };
    must_be_noticed(spoil, Troubles::default(), "begins by its name alone");
}
