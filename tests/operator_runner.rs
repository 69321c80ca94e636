//! The operator's work on an output prefix, against folders and a real S3 server: the test is the
//! controller and the workers.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "operator_runner/controller.rs"]
mod controller;
#[path = "operator_runner/following.rs"]
mod following;
#[path = "operator_runner/locking.rs"]
mod locking;
#[path = "operator_runner/million.rs"]
mod million;
#[path = "operator_runner/place.rs"]
mod place;
#[path = "operator_runner/planning.rs"]
mod planning;
#[path = "operator_runner/pods.rs"]
mod pods;
#[path = "operator_runner/restarts.rs"]
mod restarts;
#[path = "operator_runner/sealing.rs"]
mod sealing;
#[path = "operator_runner/worker.rs"]
mod worker;

/// Makes two tests of a scenario: in a folder and on a real S3 server.
macro_rules! everywhere {
    ($($(#[$attribute:meta])* $name:ident => $scenario:ident;)*) => {$(
        mod $name {
            use crate::place::Place;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_a_folder() {
                super::$scenario(Place::folder()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_s3() {
                if let Some(place) = Place::bucket() {
                    super::$scenario(place).await;
                }
            }
        }
    )*};
}
pub(crate) use everywhere;
