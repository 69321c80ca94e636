//! Which S3 services the operator talks to on behalf of SidecarJobs. Pure.
//!
//! A tenant names the endpoint, and the operator dials it from inside the cluster's network: only
//! what somebody has allowed.

use std::str::FromStr;

use storage::Peers;
use storage::address::{literal, objection};

use rules::model::Refusal;
use rules::reasons;

/// An endpoint that is allowed, as the command line has it: `*`, or `SCHEME://HOST[:PORT]`, where
/// HOST may begin with `*.` and PORT may be `*`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AllowedEndpoint(Pattern);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Pattern {
    Any,
    Server {
        scheme: String,
        host: Host,
        /// `None`: any.
        port: Option<u16>,
    },
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Host {
    /// This one.
    Is(String),
    /// Any whose name ends so; begins with a dot.
    EndsIn(String),
}

impl FromStr for AllowedEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self(Pattern::Any));
        }
        let expected = || {
            format!(
                "{text:?}: expected http(s)://HOST[:PORT], where HOST may begin with *. and PORT \
                 may be *, or * alone"
            )
        };
        let url = text.strip_suffix(":*");
        let server = Server::parse(url.unwrap_or(text)).ok_or_else(expected)?;
        let host = match server.host.strip_prefix('*') {
            None => Host::Is(server.host),
            Some(end) if end.starts_with('.') && end.len() > 1 => Host::EndsIn(end.to_owned()),
            Some(_) => return Err(expected()),
        };
        let is_plain = |host: &str| !host.contains('*');
        match &host {
            Host::Is(name) | Host::EndsIn(name) if !is_plain(name) => return Err(expected()),
            _ => {}
        }
        Ok(Self(Pattern::Server {
            scheme: server.scheme,
            host,
            port: url.is_none().then_some(server.port),
        }))
    }
}

impl AllowedEndpoint {
    /// Where the server may be, if this allows it at all. One that is named may be anywhere.
    fn admits(&self, server: &Server) -> Option<Peers> {
        match &self.0 {
            Pattern::Any => Some(Peers::NotThisMachine),
            Pattern::Server { scheme, host, port } => {
                let is_same =
                    *scheme == server.scheme && port.is_none_or(|port| port == server.port);
                match host {
                    Host::Is(name) => (is_same && *name == server.host).then_some(Peers::Any),
                    Host::EndsIn(end) => {
                        let is_below = server.host.ends_with(end.as_str());
                        (is_same && is_below).then_some(Peers::NotThisMachine)
                    }
                }
            }
        }
    }
}

/// Scheme, host and port of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Server {
    scheme: String,
    /// In small letters, without the dot at its end.
    host: String,
    port: u16,
}

impl Server {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            // The last colon of an IPv6 address in brackets is none of a port.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, usual),
        };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-._*[]:".contains(letter);
        let is_sound = !host.is_empty() && host.chars().all(is_host);
        is_sound.then_some(Self { scheme, host, port })
    }

    /// Whether this is an S3 endpoint of AWS, such as `s3.dualstack.eu-west-1.amazonaws.com`. Other
    /// names below amazonaws.com are those of customers' machines.
    fn is_aws(&self) -> bool {
        let ends = [".amazonaws.com", ".amazonaws.com.cn"];
        let mut stems = ends.iter().filter_map(|end| self.host.strip_suffix(end));
        let Some(stem) = stems.next() else {
            return false;
        };
        let mut parts = stem.split('.');
        let is_s3 = parts
            .next()
            .is_some_and(|first| first == "s3" || first.starts_with("s3-"));
        let is_region =
            |part: &str| part.contains('-') && part.ends_with(|last: char| last.is_ascii_digit());
        let mut parts = parts.skip_while(|part| *part == "dualstack");
        let is_regional = parts.next().is_none_or(is_region);
        let is_usual = self.port == if self.scheme == "https" { 443 } else { 80 };
        is_s3 && is_regional && parts.next().is_none() && is_usual
    }
}

/// What is allowed altogether.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoints {
    /// The S3 service that the operator itself uses; `None`: AWS.
    own: Option<String>,
    allowed: Vec<AllowedEndpoint>,
}

impl Endpoints {
    pub(super) fn new(own: Option<String>, allowed: Vec<AllowedEndpoint>) -> Self {
        Self { own, allowed }
    }

    /// Whether requests to `endpoint` go where the operator's own go.
    pub(super) fn is_own(&self, endpoint: Option<&str>) -> bool {
        let server = |url: &str| Server::parse(url);
        endpoint.is_none_or(|endpoint| {
            let own = self.own.as_deref().and_then(server);
            own.is_some() && own == server(endpoint)
        })
    }

    /// Where the server of an endpoint may be.
    ///
    /// # Errors
    /// If nobody has allowed it.
    pub(super) fn judge(&self, endpoint: Option<&str>) -> Result<Peers, Refusal> {
        let Some(endpoint) = endpoint else {
            return Ok(Peers::Any);
        };
        if self.is_own(Some(endpoint)) {
            return Ok(Peers::Any);
        }
        let refuse = |why: &str| Refusal {
            reason: reasons::ENDPOINT_NOT_ALLOWED,
            message: format!(
                "the operator may not talk to {endpoint} (spec.storage.endpoint){why}; leave it \
                 out for AWS, or have it added to the operator's --allow-endpoint"
            ),
        };
        let server = Server::parse(endpoint).ok_or_else(|| refuse(""))?;
        let admitted = self.allowed.iter().filter_map(|one| one.admits(&server));
        let mut peers: Vec<Peers> = admitted.collect();
        if server.is_aws() {
            peers.push(Peers::NotThisMachine);
        }
        if peers.contains(&Peers::Any) {
            return Ok(Peers::Any);
        }
        if peers.is_empty() {
            return Err(refuse(""));
        }
        match literal(&server.host).and_then(objection) {
            Some(kind) => Err(refuse(&format!(
                ": its address is {kind}, which has to be allowed by name"
            ))),
            None => Ok(Peers::NotThisMachine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(list: &[&str]) -> Endpoints {
        let list = list.iter().map(|text| text.parse().unwrap()).collect();
        Endpoints::new(Some("http://own:9000/".to_owned()), list)
    }

    #[test]
    fn aws_and_the_operators_own_need_no_permission() {
        let none = allowed(&[]);
        assert_eq!(none.judge(None).unwrap(), Peers::Any);
        assert_eq!(none.judge(Some("http://OWN:9000")).unwrap(), Peers::Any);
        for aws in [
            "https://s3.amazonaws.com",
            "https://s3.eu-west-1.amazonaws.com/",
            "https://s3.dualstack.eu-west-1.amazonaws.com",
            "https://s3-fips.us-gov-west-1.amazonaws.com",
            "https://s3.cn-north-1.amazonaws.com.cn",
        ] {
            assert_eq!(
                none.judge(Some(aws)).unwrap(),
                Peers::NotThisMachine,
                "{aws}"
            );
        }
    }

    #[test]
    fn others_are_refused() {
        let none = allowed(&[]);
        for other in [
            "http://own:9001",
            "https://own:9000",
            "http://169.254.169.254",
            "http://kubernetes.default.svc",
            "https://ec2-1-2-3-4.compute-1.amazonaws.com",
            "https://s3.evil.compute-1.amazonaws.com",
            "https://x.s3.vpce.amazonaws.com",
            "https://s3.vpce.amazonaws.com",
            "https://s3.eu-west-1.amazonaws.com:8443",
            "https://amazonaws.com.example.com",
            "https://evils3.amazonaws.com",
        ] {
            let refusal = none.judge(Some(other)).unwrap_err();
            assert_eq!(refusal.reason, "EndpointNotAllowed", "{other}");
            assert!(refusal.message.contains("--allow-endpoint"), "{other}");
        }
    }

    #[test]
    fn what_is_named_may_be_anywhere_and_what_a_pattern_covers_not_on_this_machine() {
        let some = allowed(&[
            "http://127.0.0.1:*",
            "https://*.example.com",
            "http://minio:9000",
        ]);
        for (endpoint, expected) in [
            ("http://127.0.0.1:31234", Some(Peers::Any)),
            ("http://minio:9000", Some(Peers::Any)),
            ("http://minio", None),
            ("https://s3.example.com", Some(Peers::NotThisMachine)),
            ("https://example.com", None),
            ("https://evilexample.com", None),
            ("http://s3.example.com", None),
            ("http://127.0.0.2:31234", None),
        ] {
            assert_eq!(some.judge(Some(endpoint)).ok(), expected, "{endpoint}");
        }
        let any = allowed(&["*"]);
        assert_eq!(
            any.judge(Some("http://x:1")).ok(),
            Some(Peers::NotThisMachine)
        );
        for here in [
            "http://169.254.169.254",
            "http://2852039166",
            "http://0xa9fea9fe",
            "http://127.1",
            "http://0",
        ] {
            let refusal = any.judge(Some(here)).unwrap_err();
            assert!(refusal.message.contains("by name"), "{}", refusal.message);
        }
    }

    #[test]
    fn patterns_are_checked() {
        for text in [
            "",
            "minio",
            "ftp://minio",
            "http://",
            "http://a*",
            "http://*",
            "http://*.",
            "http://a/b",
            "http://a:b",
            "http://a.*.com",
            "**",
        ] {
            let error = text.parse::<AllowedEndpoint>().unwrap_err();
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
