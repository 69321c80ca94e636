//! As whom the operator reads and writes: with the job's own identity, on an S3 server on which
//! users have rights.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use harness::dataset::Shape;
use harness::s3_server::{Grant, S3Server};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::operator::{Operator, Start};
use crate::place::{Place, eventually, everything, repository, shards};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{events, is_true, phase, reason};

const SECRET: &str = "a-secret-of-twenty-characters";

/// A bucket in which `alice` may write below `a/` and `bob` below `b/`, with a dataset in each.
fn server() -> Option<(S3Server, PathBuf)> {
    let server = S3Server::start()?
        .with_user("alice", SECRET)
        .with_user("bob", SECRET);
    let bucket = server.create_bucket("bucket");
    for team in ["a", "b"] {
        let shape = Shape {
            shards: 4,
            ..Shape::default()
        };
        shape.write(&bucket.join(team));
    }
    let grants = ["alice", "bob"].into_iter().zip([["a/"], ["b/"]]);
    let owned: Vec<(&str, [&str; 1])> = grants.collect();
    let grants: Vec<Grant> = owned
        .iter()
        .map(|(user, write)| Grant {
            user,
            read: &[],
            write,
        })
        .collect();
    server.grant("bucket", &grants);
    Some((server, bucket))
}

async fn create_secret(place: &Place, name: &str, user: &str) {
    let secrets: Api<Secret> = Api::namespaced(place.client.clone(), &place.namespace);
    let secret = json!({
        "metadata": {"name": name},
        "stringData": {"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": SECRET},
    });
    let secret = serde_json::from_value(secret).unwrap();
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
}

/// A job over the dataset of a team, with the Secret of this name.
async fn create(place: &Place, name: &str, team: &str, storage: Value) {
    let object = place.job(name, &PathBuf::from("/unused"), &json!({}));
    let mut object = json!(object);
    let text = object
        .to_string()
        .replace("/unused/", &format!("s3://bucket/{team}/"));
    object = serde_json::from_str(&text).unwrap();
    object["spec"]["output"]["prefix"] = json!(format!("s3://bucket/{team}/out-{name}/"));
    object["spec"]["storage"] = storage;
    object["spec"]["canary"] = json!({"shards": 0});
    place.create(&serde_json::from_value(object).unwrap()).await;
}

fn with_secret(server: &S3Server, name: &str) -> Value {
    json!({
        "endpoint": server.endpoint(), "region": "us-east-1",
        "credentialsSecretRef": {"name": name},
    })
}

#[tokio::test]
async fn a_jobs_secret_opens_what_its_user_may_open_and_no_more() {
    let Some(place) = Place::new("secrets").await else {
        return;
    };
    let Some((server, bucket)) = server() else {
        return;
    };
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    create_secret(&place, "alice", "alice").await;
    create(&place, "own", "a", with_secret(&server, "alice")).await;
    create(&place, "foreign", "b", with_secret(&server, "alice")).await;
    let object = place.wait_for_end("own").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    assert_eq!(shards(&bucket.join("a/out-own")).len(), 4);

    let object = place
        .wait("foreign", "refused", |object| is_true(object, "Stalled"))
        .await;
    assert_eq!(
        reason(&object, "Stalled"),
        Some("AccessDenied"),
        "{:#}",
        json!(object.status)
    );
    assert!(everything(&bucket.join("b/out-foreign")).is_empty());

    // Granted, it goes on by itself.
    let grant = Grant {
        user: "alice",
        read: &[],
        write: &["a/", "b/"],
    };
    server.grant("bucket", &[grant]);
    let object = place.wait_for_end("foreign").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
}

/// The key of a Secret is replaced and the old one revoked: nobody has to tell the operator.
#[tokio::test]
async fn a_key_that_was_replaced_is_asked_for_as_soon_as_the_old_one_is_refused() {
    let Some(place) = Place::new("replaced-key").await else {
        return;
    };
    let Some((server, bucket)) = server() else {
        return;
    };
    let _operator = Operator::begin(&place).await;
    create_secret(&place, "keys", "alice").await;
    create(&place, "photos", "a", with_secret(&server, "keys")).await;
    place
        .wait("photos", "with a Job", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| !status.batches.is_empty())
        })
        .await;

    let secrets: Api<Secret> = Api::namespaced(place.client.clone(), &place.namespace);
    let bob = Patch::Merge(json!({"stringData": {"AWS_ACCESS_KEY_ID": "bob"}}));
    secrets
        .patch("keys", &PatchParams::default(), &bob)
        .await
        .unwrap();
    let grant = Grant {
        user: "bob",
        read: &[],
        write: &["a/"],
    };
    server.grant("bucket", &[grant]);
    let _pods = PodRunner::begin(&place);
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    assert_eq!(shards(&bucket.join("a/out-photos")).len(), 4);
    // It was not refused for long enough to lose its lock, nor did anybody have to act.
    assert_eq!(object.status.unwrap().run.unwrap().epoch, Some(1));
    let told = events(&place.client, &place.namespace, "photos").await;
    assert!(
        !told.iter().any(|(reason, _)| reason == "AccessDenied"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_job_without_an_identity_says_what_it_lacks_and_goes_on_once_it_has_it() {
    let Some(place) = Place::new("lacking").await else {
        return;
    };
    let Some((server, _)) = server() else {
        return;
    };
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let nobody = json!({"endpoint": server.endpoint()});
    create(&place, "nobody", "a", nobody).await;
    create(&place, "missing", "a", with_secret(&server, "alice")).await;
    for (name, expected) in [("nobody", "NoIdentity"), ("missing", "SecretNotFound")] {
        let object = place
            .wait(name, "stalled", |object| is_true(object, "Stalled"))
            .await;
        assert_eq!(
            reason(&object, "Stalled"),
            Some(expected),
            "{:#}",
            json!(object.status)
        );
    }
    create_secret(&place, "alice", "alice").await;
    let storage = with_secret(&server, "alice");
    place
        .patch("nobody", &json!({"spec": {"storage": storage}}))
        .await;
    for name in ["nobody", "missing"] {
        let object = place.wait_for_end(name).await;
        assert!(
            is_true(&object, "Complete"),
            "{name}: {:#}",
            json!(object.status)
        );
    }
}

#[tokio::test]
async fn the_operators_own_identity_serves_listed_prefixes_at_its_own_service_only() {
    let Some(place) = Place::new("own").await else {
        return;
    };
    let Some((server, bucket)) = server() else {
        return;
    };
    let own = format!("--own-identity-prefix={}=s3://bucket/a/", place.namespace);
    // What is another namespace's is not this one's.
    let others = "--own-identity-prefix=another=s3://bucket/b/";
    let mut start = Start::new(&place).argument(&own).argument(others);
    for (name, value) in server.environment() {
        start = start.variable(name, &value);
    }
    let operator = start.begin().await;
    operator.wait_for("leader").await;
    create(&place, "listed", "a", Value::Null).await;
    create(&place, "unlisted", "b", Value::Null).await;
    // A tenant's own server would be sent requests that are signed with the operator's key.
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", trap.local_addr().unwrap());
    create(&place, "elsewhere", "a", json!({"endpoint": endpoint})).await;
    place
        .wait("listed", "planned", |object| is_true(object, "Planned"))
        .await;
    for name in ["unlisted", "elsewhere"] {
        let object = place
            .wait(name, "stalled", |object| is_true(object, "Stalled"))
            .await;
        assert_eq!(
            reason(&object, "Stalled"),
            Some("NoIdentity"),
            "{:#}",
            json!(object.status)
        );
        assert_eq!(phase(&object), "Stalled");
    }
    assert!(everything(&bucket.join("b/out-unlisted")).is_empty());
    let dialled = tokio::time::timeout(Duration::from_millis(100), trap.accept()).await;
    assert!(dialled.is_err(), "nobody has dialled the tenant's server");
}

/// A token service that knows one role, and what it was asked.
struct TokenService {
    endpoint: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TokenService {
    /// Hands out the user's access key, for so long, and no session token: the S3 server would
    /// not take one.
    async fn begin(user: &'static str, lifetime: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let body = read_request(&mut connection).await;
                noted.lock().unwrap().push(body);
                let expires = Timestamp::try_from(SystemTime::now() + lifetime).unwrap();
                let answer = format!(
                    "<AssumeRoleWithWebIdentityResponse \
                     xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                     <AssumeRoleWithWebIdentityResult><Credentials>\
                     <AccessKeyId>{user}</AccessKeyId>\
                     <SecretAccessKey>{SECRET}</SecretAccessKey>\
                     <SessionToken></SessionToken>\
                     <Expiration>{expires:.0}</Expiration>\
                     </Credentials></AssumeRoleWithWebIdentityResult>\
                     </AssumeRoleWithWebIdentityResponse>"
                );
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\n",
                    answer.len()
                );
                // The client may be gone.
                let _ = connection.write_all((head + &answer).as_bytes()).await;
            }
        });
        Self { endpoint, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The body of a request.
async fn read_request(connection: &mut tokio::net::TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = connection.read(&mut buffer).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(count > 0, "a request without an end");
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().unwrap())
        });
        if body.len() >= length.unwrap_or(0) {
            return body.to_owned();
        }
    }
}

#[tokio::test]
async fn a_role_is_assumed_with_a_token_of_the_jobs_service_account() {
    let Some(place) = Place::new("role").await else {
        return;
    };
    let Some((server, bucket)) = server() else {
        return;
    };
    // It is a component; what it adds is applied as it is.
    let role = repository().join("config/web-identity/binding.yaml");
    let role = role.display().to_string();
    place
        .cluster
        .kubectl(&["apply", "--server-side", "-f", &role])
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(place.client.clone(), &place.namespace);
    let account = json!({"metadata": {
        "name": "photos",
        "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/photos"},
    }});
    let account = serde_json::from_value(account).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    // Credentials that have to be renewed a few seconds after they were had.
    let service = TokenService::begin("alice", Duration::from_secs(65)).await;
    let operator = Start::new(&place)
        .variable("AWS_ENDPOINT_URL_STS", &service.endpoint)
        .begin()
        .await;
    operator.wait_for("leader").await;
    let storage = json!({"endpoint": server.endpoint(), "region": "us-east-1"});
    create(&place, "photos", "a", storage).await;
    place
        .patch(
            "photos",
            &json!({"spec": {"worker": {"serviceAccountName": "photos"}}}),
        )
        .await;
    place
        .wait("photos", "planned", |object| is_true(object, "Planned"))
        .await;
    assert!(bucket.join("a/out-photos/_sidecar/writer.json").is_file());
    let first = service.asked().len();
    eventually("they are renewed", async || {
        (service.asked().len() > first).then_some(())
    })
    .await;

    let asked = service.asked();
    let question = &asked[0];
    assert!(
        question.contains("Action=AssumeRoleWithWebIdentity"),
        "{question}"
    );
    assert!(
        question.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fphotos"),
        "{question}"
    );
    let token = question
        .split('&')
        .find_map(|pair| pair.strip_prefix("WebIdentityToken="));
    let claims = claims(token.unwrap());
    assert_eq!(claims["aud"], json!(["sts.amazonaws.com"]));
    let subject = format!("system:serviceaccount:{}:photos", place.namespace);
    assert_eq!(claims["sub"], json!(subject));
    place.cluster.kubectl(&["delete", "-f", &role]).unwrap();
}

/// What a token says (RFC 7519): its middle part is JSON in base64 of the URL kind.
fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    let mut bits: u32 = 0;
    let mut count = 0;
    let mut bytes = Vec::new();
    for letter in payload.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => panic!("{token} is no token"),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    serde_json::from_slice(&bytes).unwrap()
}
