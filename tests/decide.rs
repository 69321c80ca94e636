//! The operator's rules as tables: what was observed in, the exact actions and conditions out. No
//! server, no clock.

#[path = "decide/attempts.rs"]
mod attempts;
#[path = "decide/canary.rs"]
mod canary;
#[path = "decide/changes.rs"]
mod changes;
#[path = "decide/jobs.rs"]
mod jobs;
#[path = "decide/life.rs"]
mod life;
#[path = "decide/limits.rs"]
mod limits;
#[path = "decide/lock.rs"]
mod lock;
#[path = "decide/reasons.rs"]
mod reasons;
#[path = "decide/replay.rs"]
mod replay;
#[path = "decide/scaling.rs"]
mod scaling;
#[path = "decide/scene.rs"]
mod scene;
#[path = "decide/seal.rs"]
mod seal;
#[path = "decide/silence.rs"]
mod silence;
#[path = "decide/sizing.rs"]
mod sizing;
#[path = "decide/suspend.rs"]
mod suspend;
#[path = "decide/upgrades.rs"]
mod upgrades;
