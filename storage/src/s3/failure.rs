//! What an answer that is no success means.

use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use super::http::REFUSED_ADDRESS;
use crate::error::{Error, Scope};

/// How a body that is longer than it may be is told apart.
const TOO_LONG: &str = "length limit exceeded";

/// A laptop without credentials should hear of it soon.
const CREDENTIAL_ATTEMPTS: u32 = 5;

/// An answer that is no S3 server's may be a proxy's, and another one the next time.
const GARBLED_ATTEMPTS: u32 = 5;

const CREDENTIALS_ADVICE: &str = "no usable credentials: set AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the pod a service account with a role";

/// What to do about a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// No such object (or upload).
    Missing,
    /// No such bucket.
    MissingBucket,
    /// A condition of the request did not hold.
    ConditionBroken,
    /// Another conditional write is under way: ask again.
    Conflict,
    /// Too many requests.
    SlowDown,
    /// A server error or a broken connection: ask again.
    Transient,
    /// Credentials or permissions, with how far that reaches and what to check.
    Refused(Scope, &'static str),
    /// Whoever hands out credentials fails, perhaps for a moment.
    NoCredentials,
    /// An answer that can't be parsed.
    Garbled,
    /// There is no leave to send the request; true: for good.
    Withheld(bool),
    /// The request can't ever succeed, with the way out if there is a known one.
    Hopeless(&'static str),
}

impl Kind {
    /// Whether to ask again after so many attempts (and within the budget).
    pub(super) fn is_worth_a_retry(&self, attempts: u32) -> bool {
        match self {
            Self::Conflict | Self::SlowDown | Self::Transient => true,
            Self::NoCredentials => attempts < CREDENTIAL_ATTEMPTS,
            Self::Garbled => attempts < GARBLED_ATTEMPTS,
            _ => false,
        }
    }
}

/// A call that failed for good.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    /// The last attempt's error and all its sources in words.
    pub(super) words: String,
    pub(super) attempts: u32,
    pub(super) spent: Duration,
}

impl Failure {
    /// The error of a call for `uri`, where no condition was set.
    pub(super) fn into_error(self, uri: &str) -> Error {
        let uri = uri.to_string();
        match self.kind {
            Kind::Missing => Error::NotFound { uri },
            Kind::MissingBucket => Error::NoBucket { uri },
            Kind::ConditionBroken => Error::Changed { uri },
            Kind::Refused(scope, advice) => Error::Refused {
                uri,
                scope,
                reason: format!("{} ({advice})", self.words),
                source: None,
            },
            Kind::NoCredentials => Error::Refused {
                uri,
                scope: Scope::Store,
                reason: format!("{} ({CREDENTIALS_ADVICE})", self.words),
                source: None,
            },
            Kind::Garbled => Error::BadAnswer {
                uri,
                reason: format!("{}; check that the endpoint is an S3 server's", self.words),
            },
            Kind::Withheld(is_final) => Error::Withheld {
                uri,
                reason: self.words,
                is_final,
            },
            Kind::Hopeless(advice) => {
                let reason = format!("the server says: {}{advice}", self.words);
                Error::Invalid { uri, reason }
            }
            Kind::Conflict | Kind::SlowDown | Kind::Transient => Error::Unavailable {
                uri,
                reason: self.words,
                attempts: self.attempts,
                seconds: self.spent.as_secs_f64(),
                source: None,
            },
        }
    }
}

/// Judges a failed attempt.
pub(super) fn judge<E>(error: &SdkError<E, HttpResponse>) -> (Kind, String)
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match error {
        SdkError::ServiceError(service) => {
            let status = service.raw().status().as_u16();
            let code = service.err().code().unwrap_or_default();
            let message = service.err().message().unwrap_or_default();
            let words = match (code, message) {
                ("", "") if (200..300).contains(&status) => {
                    format!("status {status}, but {}", one_line(service.err()))
                }
                ("", "") => format!("status {status}"),
                (code, "") => format!("{code}, status {status}"),
                (code, message) => format!("{code}, status {status}: {message}"),
            };
            (judge_answer(status, code), words)
        }
        SdkError::ResponseError(_) | SdkError::TimeoutError(_) => {
            let words = one_line(error);
            (judge_words(&words, Kind::Transient), words)
        }
        SdkError::DispatchFailure(dispatch) => {
            let words = one_line(error);
            if dispatch.is_user() && !words.contains(REFUSED_ADDRESS) {
                return (Kind::Hopeless("; check the endpoint"), words);
            }
            (judge_words(&words, Kind::Transient), words)
        }
        _ => {
            let words = one_line(error);
            (judge_words(&words, Kind::Hopeless("")), words)
        }
    }
}

/// The error and its sources in one line, without what a source repeats.
fn one_line(error: &dyn StdError) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !words.ends_with(&more) {
            words = format!("{words}: {more}");
        }
        source = error.source();
    }
    let lines: Vec<&str> = words.lines().map(str::trim).collect();
    lines.join(" ")
}

/// The SDK has no types for "there are no credentials" and the like: only its words tell.
fn judge_words(words: &str, otherwise: Kind) -> Kind {
    let lower = words.to_ascii_lowercase();
    if lower.contains("not a valid uri") {
        return Kind::Hopeless("; an endpoint begins with http:// or https://");
    }
    if words.contains(REFUSED_ADDRESS) {
        return Kind::Hopeless("; name another endpoint, or have this one allowed");
    }
    if words.contains(TOO_LONG) {
        return Kind::Hopeless("; the answer is longer than any of an S3 server");
    }
    if lower.contains("while loading credentials") {
        return Kind::NoCredentials;
    }
    if lower.contains("credential") || lower.contains("identity resolver") {
        return Kind::Refused(Scope::Store, CREDENTIALS_ADVICE);
    }
    otherwise
}

fn judge_answer(status: u16, code: &str) -> Kind {
    match code {
        "NoSuchBucket" => return Kind::MissingBucket,
        "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "TooManyRequests"
        | "ServiceUnavailable" => return Kind::SlowDown,
        "RequestTimeout" | "IncompleteBody" | "InternalError" => return Kind::Transient,
        "ConditionalRequestConflict" | "OperationAborted" => return Kind::Conflict,
        "ExpiredToken" | "ExpiredTokenException" | "InvalidToken" => {
            let advice = "the session token is not valid, or no longer: renew it";
            return Kind::Refused(Scope::Store, advice);
        }
        "InvalidAccessKeyId" => {
            let advice = "check AWS_ACCESS_KEY_ID or the profile, and the endpoint";
            return Kind::Refused(Scope::Store, advice);
        }
        "SignatureDoesNotMatch" => {
            let advice = "check AWS_SECRET_ACCESS_KEY, and the region";
            return Kind::Refused(Scope::Store, advice);
        }
        "RequestTimeTooSkewed" => {
            return Kind::Refused(Scope::Store, "the clock of this machine is wrong");
        }
        "AccountProblem" | "AllAccessDisabled" | "InvalidSecurity" | "NotSignedUp" => {
            return Kind::Refused(Scope::Store, "the account is closed or restricted");
        }
        "InvalidObjectState" => {
            let advice = "the object is archived: restore it, and run again";
            return Kind::Refused(Scope::Object, advice);
        }
        "ObjectParentIsFile" | "ExistingObjectIsDirectory" => {
            return Kind::Hopeless(
                "; this server can't hold an object whose key is a folder of another's",
            );
        }
        _ => {}
    }
    // An answer that begins as a success may end as an error: its code tells which.
    let status = match status {
        200..300 => status_of(code),
        status => status,
    };
    match status {
        401 => Kind::Refused(Scope::Store, "check the credentials"),
        403 => Kind::Refused(
            Scope::Object,
            "check that the identity may s3:GetObject, s3:PutObject, s3:DeleteObject and \
             s3:ListBucket here",
        ),
        404 if is_about_an_object(code) => Kind::Missing,
        404 => Kind::Refused(
            Scope::Store,
            "check the credentials, and that the endpoint is an S3 server's",
        ),
        409 => Kind::Hopeless(""),
        412 => Kind::ConditionBroken,
        429 | 503 => Kind::SlowDown,
        301 | 307 | 308 => Kind::Hopeless("; the bucket is in another region: set the region"),
        501 => Kind::Hopeless("; the server lacks an operation or a condition that is needed"),
        500.. => Kind::Transient,
        408 => Kind::Transient,
        _ if code.is_empty() => Kind::Garbled,
        _ => Kind::Hopeless(""),
    }
}

/// The status that comes with an error's code, where the answer has another.
fn status_of(code: &str) -> u16 {
    match code {
        "AccessDenied" => 403,
        "NoSuchKey" | "NoSuchUpload" => 404,
        "PreconditionFailed" => 412,
        "NotImplemented" => 501,
        _ => 400,
    }
}

/// Whether a 404 says that something isn't there. Of a HEAD there is no code but the SDK's own.
fn is_about_an_object(code: &str) -> bool {
    matches!(
        code,
        "" | "NotFound" | "NoSuchKey" | "NoSuchUpload" | "NoSuchVersion"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged() {
        for (status, code, kind) in [
            (404, "", Kind::Missing),
            (404, "NoSuchKey", Kind::Missing),
            (
                404,
                "XAdminUserNotFound",
                Kind::Refused(
                    Scope::Store,
                    "check the credentials, and that the endpoint is an S3 server's",
                ),
            ),
            (404, "NoSuchBucket", Kind::MissingBucket),
            (412, "PreconditionFailed", Kind::ConditionBroken),
            (200, "PreconditionFailed", Kind::ConditionBroken),
            (200, "NoSuchUpload", Kind::Missing),
            (200, "InternalError", Kind::Transient),
            (200, "SlowDown", Kind::SlowDown),
            (200, "ConditionalRequestConflict", Kind::Conflict),
            (200, "", Kind::Garbled),
            (405, "", Kind::Garbled),
            (409, "ConditionalRequestConflict", Kind::Conflict),
            (503, "SlowDown", Kind::SlowDown),
            (503, "", Kind::SlowDown),
            (429, "", Kind::SlowDown),
            (400, "RequestTimeout", Kind::Transient),
            (500, "InternalError", Kind::Transient),
            (502, "", Kind::Transient),
        ] {
            assert_eq!(judge_answer(status, code), kind, "{status} {code}");
        }
        for (status, code, reach) in [
            (401, "", Scope::Store),
            (403, "InvalidAccessKeyId", Scope::Store),
            (403, "SignatureDoesNotMatch", Scope::Store),
            (403, "RequestTimeTooSkewed", Scope::Store),
            (403, "AllAccessDisabled", Scope::Store),
            (400, "ExpiredToken", Scope::Store),
            (403, "AccessDenied", Scope::Object),
            (200, "AccessDenied", Scope::Object),
            (403, "InvalidObjectState", Scope::Object),
            (403, "", Scope::Object),
        ] {
            match judge_answer(status, code) {
                Kind::Refused(scope, _) => assert_eq!(scope, reach, "{status} {code}"),
                kind => panic!("{status} {code} is {kind:?}"),
            }
        }
        for (status, code) in [
            (400, "InvalidArgument"),
            (200, "InvalidPart"),
            (409, "ObjectParentIsFile"),
            (501, ""),
        ] {
            let kind = judge_answer(status, code);
            assert!(matches!(kind, Kind::Hopeless(_)), "{status} {code}");
        }
    }

    #[test]
    fn missing_credentials_are_a_refusal() {
        let words = "dispatch failure: other: the credential provider was not enabled";
        assert!(matches!(
            judge_words(words, Kind::Transient),
            Kind::Refused(Scope::Store, _)
        ));
        let words = "dispatch failure: an error occurred while loading credentials: timeout";
        let kind = judge_words(words, Kind::Transient);
        assert_eq!(kind, Kind::NoCredentials);
        assert!(kind.is_worth_a_retry(1) && !kind.is_worth_a_retry(5));
        let words = "dispatch failure: io error: connection reset by peer";
        assert_eq!(judge_words(words, Kind::Transient), Kind::Transient);
    }
}
