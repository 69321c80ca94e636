//! The harness's S3 server: users with rights of their own.

use std::process::Command;

use harness::s3_server::{Grant, S3Server};
use harness::tool::find_program;

const BUCKET: &str = "bucket";

struct Client<'a> {
    server: &'a S3Server,
    keys: String,
}

impl Client<'_> {
    /// HTTP status of the answer to a request, signed with the client's keys.
    fn request(&self, method: &str, path: &str, body: &str) -> u16 {
        use sha2::{Digest, Sha256};
        let hash: String = Sha256::digest(body)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let output = Command::new("curl")
            .args(["--silent", "--output", "/dev/null", "--noproxy", "*"])
            .args(["--write-out", "%{http_code}", "--request", method])
            .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &self.keys])
            .args(["--header", &format!("x-amz-content-sha256: {hash}")])
            .args(["--data-binary", body])
            .arg(format!("{}/{BUCKET}{path}", self.server.endpoint()))
            .output()
            .expect("curl runs");
        let code = String::from_utf8_lossy(&output.stdout);
        code.parse().expect("curl says the status")
    }

    fn list(&self, prefix: &str) -> u16 {
        self.request("GET", &format!("?list-type=2&prefix={prefix}%2F"), "")
    }
}

#[test]
fn users_may_do_what_is_granted_and_no_more() {
    let (Some(server), Some(_)) = (S3Server::start(), find_program("curl", "curl")) else {
        return;
    };
    let server = server
        .with_user("tenant-a", "secret-of-tenant-a")
        .with_user("tenant-b", "secret-of-tenant-b");
    server.create_bucket(BUCKET);
    let client = |keys: &str| Client {
        server: &server,
        keys: keys.to_owned(),
    };
    let administrator = client(&format!("{}:{}", server.access_key(), server.secret_key()));
    let tenant = client("tenant-a:secret-of-tenant-a");
    let other = client("tenant-b:secret-of-tenant-b");
    let intruder = client("tenant-a:secret-of-tenant-b");

    assert_eq!(administrator.request("PUT", "/in/one", "x"), 200);
    assert_eq!(administrator.request("PUT", "/out/one", "x"), 200);
    assert_eq!(
        tenant.request("GET", "/in/one", ""),
        403,
        "before the grant"
    );
    server.grant(
        BUCKET,
        &[Grant {
            user: "tenant-a",
            read: &["in/"],
            write: &["out/"],
        }],
    );

    assert_eq!(tenant.list("in"), 200);
    assert_eq!(tenant.request("GET", "/in/one", ""), 200);
    assert_eq!(tenant.request("PUT", "/in/two", "x"), 403);
    assert_eq!(tenant.request("DELETE", "/in/one", ""), 403);
    assert_eq!(tenant.list("out"), 200);
    assert_eq!(tenant.request("PUT", "/out/two", "x"), 200);
    assert_eq!(tenant.request("GET", "/out/two", ""), 200);
    assert_eq!(tenant.request("DELETE", "/out/two", ""), 204);
    assert_eq!(tenant.list("elsewhere"), 403);
    assert_eq!(tenant.request("GET", "/elsewhere/one", ""), 403);

    assert_eq!(other.list("in"), 403);
    assert_eq!(other.request("GET", "/in/one", ""), 403);
    assert_eq!(intruder.request("GET", "/in/one", ""), 403);
}

#[test]
fn data_and_rights_survive_the_servers_death() {
    let (Some(server), Some(_)) = (S3Server::start(), find_program("curl", "curl")) else {
        return;
    };
    let server = server.with_user("tenant-a", "secret-of-tenant-a");
    server.create_bucket(BUCKET);
    server.grant(
        BUCKET,
        &[Grant {
            user: "tenant-a",
            read: &[],
            write: &["out/"],
        }],
    );
    let tenant = Client {
        server: &server,
        keys: "tenant-a:secret-of-tenant-a".to_owned(),
    };
    assert_eq!(tenant.request("PUT", "/out/one", "x"), 200);
    server.kill();
    assert_eq!(tenant.request("GET", "/out/one", ""), 0, "nobody is there");
    server.restart().expect("it starts again");
    assert_eq!(tenant.request("GET", "/out/one", ""), 200);
}
