//! Sending a request until it is answered.
//!
//! The SDK's own retries are off: ours know the difference between a bucket that is slow for
//! three minutes and a request that can't succeed, and every attempt is counted.

use std::error::Error as StdError;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use super::S3Store;
use super::failure::{Failure, Kind, judge};
use super::pace::Pass;
use crate::counting::Counters;
use crate::store::Permit;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// So many failures in a row are worth telling the user.
const PATIENT_ATTEMPTS: u32 = 6;

/// What a body adds to the time that an answer may take: a mebibyte a second.
const SLOWEST_UPLOAD: u64 = 1 << 20;

/// How much of the budget for retries one call has used up.
#[derive(Debug)]
pub(super) struct Patience {
    budget: Duration,
    spent: Duration,
    pub(super) attempts: u32,
    fruitless: u32,
}

impl Patience {
    pub(super) fn new(budget: Duration) -> Self {
        Self {
            budget,
            spent: Duration::ZERO,
            attempts: 0,
            fruitless: 0,
        }
    }

    /// The last attempt brought something: the budget starts anew.
    pub(super) fn restore(&mut self) {
        self.spent = Duration::ZERO;
        self.fruitless = 0;
    }

    /// Books a fruitless attempt; returns the pause before the next, or none if the budget is
    /// used up. `luck` is in `0.0..1.0`.
    fn pause(&mut self, attempt: Duration, luck: f64) -> Option<Duration> {
        self.fruitless += 1;
        self.spent += attempt;
        let doublings = self.fruitless.saturating_sub(1).min(16);
        let full = FIRST_PAUSE
            .saturating_mul(1 << doublings)
            .min(LONGEST_PAUSE);
        let pause = full.mul_f64(0.5 + luck / 2.0);
        if self.spent + pause > self.budget {
            return None;
        }
        self.spent += pause;
        Some(pause)
    }

    /// The failure to report when an attempt is the last.
    pub(super) fn failure(&self, kind: Kind, words: String) -> Failure {
        Failure {
            kind,
            words,
            attempts: self.attempts,
            spent: self.spent,
        }
    }
}

/// One sort of request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sort<'a> {
    pub(super) counter: &'a AtomicU64,
    /// Bytes sent with it.
    pub(super) upload: u64,
    /// Who is asked before each attempt whether it may be sent.
    pub(super) permit: Option<&'a dyn Permit>,
}

impl<'a> Sort<'a> {
    /// A request that nobody is asked about, without a body to speak of.
    pub(super) fn of(counter: &'a AtomicU64) -> Self {
        Self {
            counter,
            upload: 0,
            permit: None,
        }
    }
}

impl S3Store {
    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.connection.config.retry_budget)
    }

    /// Sends until the answer is a success or a retry is pointless.
    pub(super) async fn send<T, E, F>(
        &self,
        sort: Sort<'_>,
        request: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        let (answer, _pass) = self
            .send_patiently(sort, &mut self.patience(), request)
            .await?;
        Ok(answer)
    }

    /// As `send`, for a call of several requests. The pass is to be kept while the body is read.
    pub(super) async fn send_patiently<T, E, F>(
        &self,
        sort: Sort<'_>,
        patience: &mut Patience,
        mut request: impl FnMut() -> F,
    ) -> Result<(T, Pass), Failure>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        let config = &self.connection.config;
        let upload_seconds = sort.upload / SLOWEST_UPLOAD;
        let timeout = config.first_byte_timeout + Duration::from_secs(upload_seconds);
        let mut is_renewed = false;
        loop {
            let pass = self.pacer.pass().await;
            if let Some(permit) = sort.permit
                && let Err(withheld) = permit.ask(false).await
            {
                let kind = Kind::Withheld(withheld.is_final);
                return Err(patience.failure(kind, withheld.reason));
            }
            if patience.attempts > 0 {
                Counters::add(&self.counters.retries, 1);
            }
            patience.attempts += 1;
            Counters::add(sort.counter, 1);
            let started = Instant::now();
            let (kind, words) = match tokio::time::timeout(timeout, request()).await {
                Ok(Ok(answer)) => {
                    self.pacer.answered();
                    return Ok((answer, pass));
                }
                Ok(Err(error)) => {
                    let (kind, words) = judge(&error);
                    let words = match kind {
                        Kind::Transient => self.with_endpoint(&error, words),
                        _ => words,
                    };
                    (kind, words)
                }
                Err(_) => {
                    let words = format!("no answer within {:.1} s", timeout.as_secs_f64());
                    (Kind::Transient, words)
                }
            };
            drop(pass);
            if kind == Kind::SlowDown {
                Counters::add(&self.counters.slow_down, 1);
                self.pacer.slow_down(Instant::now());
            }
            if matches!(kind, Kind::Refused(..)) && !is_renewed {
                is_renewed = self.connection.has_other_credentials(started).await;
                if is_renewed {
                    tracing::info!(uri = %self.uri, %words, "there are other credentials now");
                    continue;
                }
            }
            if !kind.is_worth_a_retry(patience.attempts) {
                return Err(patience.failure(kind, words));
            }
            let Some(pause) = patience.pause(started.elapsed(), rand::random()) else {
                return Err(patience.failure(kind, words));
            };
            if patience.attempts == PATIENT_ATTEMPTS {
                let seconds = config.retry_budget.as_secs();
                tracing::warn!(uri = %self.uri, %words, "requests keep failing; trying for up to {seconds} s");
            } else {
                tracing::debug!(uri = %self.uri, ?kind, %words, ?pause, "request failed; trying again");
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Names the server where none was reached.
    fn with_endpoint<E>(&self, error: &SdkError<E, HttpResponse>, words: String) -> String {
        match (&self.connection.config.endpoint, error) {
            (Some(endpoint), SdkError::DispatchFailure(_)) => format!("{endpoint}: {words}"),
            _ => words,
        }
    }

    /// Waits before a body is asked for again; fails once the budget is used up.
    pub(super) async fn pause_after_broken_body(
        &self,
        patience: &mut Patience,
        elapsed: Duration,
        words: String,
    ) -> Result<(), Failure> {
        match patience.pause(elapsed, rand::random()) {
            Some(pause) => {
                tracing::debug!(uri = %self.uri, %words, ?pause, "body broke off; going on from there");
                tokio::time::sleep(pause).await;
                Ok(())
            }
            None => Err(patience.failure(Kind::Transient, words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_end_with_the_budget() {
        let mut patience = Patience::new(Duration::from_secs(180));
        let mut pauses = Vec::new();
        while let Some(pause) = patience.pause(Duration::ZERO, 1.0) {
            pauses.push(pause);
        }
        assert_eq!(pauses[0], FIRST_PAUSE);
        assert_eq!(pauses[1], FIRST_PAUSE * 2);
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
        assert!(pauses.iter().sum::<Duration>() <= Duration::from_secs(180));
        assert!(pauses.len() > 20);
    }

    #[test]
    fn slow_attempts_use_up_the_budget_too() {
        let mut patience = Patience::new(Duration::from_secs(60));
        assert!(patience.pause(Duration::from_secs(30), 0.5).is_some());
        assert!(patience.pause(Duration::from_secs(30), 0.5).is_none());
        patience.restore();
        assert!(patience.pause(Duration::from_secs(30), 0.5).is_some());
    }
}
