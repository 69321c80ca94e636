//! An S3 server in memory that does what a test says: for answers that no real server gives on
//! demand. It checks no signatures.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request, as it came.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Headers; names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers but for the length.
    pub headers: Vec<(&'static str, String)>,
    /// Body; of a HEAD only its length is sent.
    pub body: Vec<u8>,
    /// The body comes in pieces of so many bytes, with a pause after each.
    pub drip: Option<(usize, Duration)>,
}

impl Answer {
    /// An answer with a body.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            ..Self::default()
        }
    }

    /// An error as S3 words it.
    pub fn error(status: u16, code: &str) -> Self {
        let body = format!("<Error><Code>{code}</Code><Message>as told</Message></Error>");
        Self::new(status, body)
    }
}

impl Request {
    /// Path without query, decoded.
    pub fn path(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        crds::prefix::percent_decode(path).unwrap_or_default()
    }

    /// A parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| {
            let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
            (found == name).then(|| crds::prefix::percent_decode(value).unwrap_or_default())
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

type Script = dyn Fn(&Request) -> Option<Answer> + Send + Sync;

/// A running server with one bucket, `bucket`; it ends when dropped.
pub struct ScriptedS3 {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    script: Box<Script>,
    /// Path before the bucket's name.
    under: String,
    keeps_conditions: bool,
    objects: Mutex<BTreeMap<String, (Vec<u8>, String)>>,
    seen: Mutex<Vec<String>>,
    ends: AtomicBool,
}

impl fmt::Debug for ScriptedS3 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ScriptedS3({})", self.address)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedS3 {
    /// A server that gives the script's answers, and its own where the script has none.
    pub fn start(script: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Self {
        Self::start_with("", true, script)
    }

    /// The same below a path, or one that keeps no conditions of writes.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn start_with(
        under: &str,
        keeps_conditions: bool,
        script: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let bound = TcpListener::bind(("127.0.0.1", 0));
        let (listener, address) = match bound.and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        }) {
            Ok(bound) => bound,
            Err(error) => panic!("the server does not start: {error}"),
        };
        let shared = Arc::new(Shared {
            script: Box::new(script),
            under: under.to_owned(),
            keeps_conditions,
            objects: Mutex::default(),
            seen: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if serving.ends.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), shared) = (client, Arc::clone(&serving)) else {
                    return;
                };
                // A client that goes away is no news.
                std::thread::spawn(move || shared.serve(client));
            }
        });
        Self { shared, address }
    }

    /// URL to give as endpoint, without the path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What a worker finds in its environment.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Puts an object there.
    pub fn put(&self, key: &str, body: Vec<u8>) {
        self.shared.put(key, body);
    }

    /// An object's bytes, if it is there.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let objects = lock(&self.shared.objects);
        objects.get(key).map(|(body, _)| body.clone())
    }

    /// Keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.shared.objects).keys().cloned().collect()
    }

    /// Method and target of the requests so far.
    pub fn seen(&self) -> Vec<String> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for ScriptedS3 {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn put(&self, key: &str, body: Vec<u8>) -> String {
        let hash = storage::Payload::new(body.clone()).sha256;
        let etag = format!("\"{}\"", &hash[..32]);
        lock(&self.objects).insert(key.to_owned(), (body, etag.clone()));
        etag
    }

    fn serve(&self, client: TcpStream) -> std::io::Result<()> {
        let mut output = client.try_clone()?;
        let mut input = BufReader::new(client);
        while let Some(request) = read_request(&mut input, &mut output)? {
            lock(&self.seen).push(format!("{} {}", request.method, request.target));
            let answer = (self.script)(&request).unwrap_or_else(|| self.answer(&request));
            write_answer(&mut output, &request, &answer)?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Answer {
        let path = request.path();
        let Some(rest) = path
            .strip_prefix(&self.under)
            .and_then(|path| path.strip_prefix("/bucket"))
        else {
            return Answer::error(404, "NoSuchBucket");
        };
        let key = rest.trim_start_matches('/');
        match request.method.as_str() {
            "GET" if key.is_empty() && request.parameter("uploads").is_some() => {
                Answer::new(200, "<ListMultipartUploadsResult/>")
            }
            "GET" if key.is_empty() => self.list(request),
            "GET" | "HEAD" => self.read(request, key),
            "PUT" => self.write(request, key),
            "DELETE" => {
                lock(&self.objects).remove(key);
                Answer::new(204, "")
            }
            _ => Answer::error(501, "NotImplemented"),
        }
    }

    fn read(&self, request: &Request, key: &str) -> Answer {
        let Some((body, etag)) = lock(&self.objects).get(key).cloned() else {
            return Answer::error(404, "NoSuchKey");
        };
        if request
            .header("if-match")
            .is_some_and(|wanted| wanted != etag)
        {
            return Answer::error(412, "PreconditionFailed");
        }
        let mut answer = Answer::new(200, body);
        answer.headers.push(("ETag", etag));
        let range = request.header("range").and_then(|range| {
            let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
            let end: usize = end.parse().ok()?;
            Some((start.parse::<usize>().ok()?, end + 1))
        });
        if let Some((start, end)) = range {
            let all = answer.body.len();
            if start >= all {
                return Answer::error(416, "InvalidRange");
            }
            answer.status = 206;
            answer.body = answer.body[start..end.min(all)].to_vec();
            let range = format!("bytes {start}-{}/{all}", end.min(all) - 1);
            answer.headers.push(("Content-Range", range));
        }
        answer
    }

    fn write(&self, request: &Request, key: &str) -> Answer {
        let there = lock(&self.objects).get(key).map(|(_, etag)| etag.clone());
        if self.keeps_conditions {
            if request.header("if-none-match").is_some() && there.is_some() {
                return Answer::error(412, "PreconditionFailed");
            }
            if let Some(wanted) = request.header("if-match")
                && there.as_deref() != Some(wanted)
            {
                return Answer::error(412, "PreconditionFailed");
            }
        }
        let mut answer = Answer::new(200, "");
        answer
            .headers
            .push(("ETag", self.put(key, request.body.clone())));
        answer
    }

    /// All of it in one page.
    fn list(&self, request: &Request) -> Answer {
        let prefix = request.parameter("prefix").unwrap_or_default();
        let after = request.parameter("start-after").unwrap_or_default();
        let delimiter = request.parameter("delimiter").unwrap_or_default();
        let mut entries = BTreeMap::new();
        for (key, (body, etag)) in lock(&self.objects).iter() {
            let Some(rest) = key.strip_prefix(&prefix).filter(|_| *key > after) else {
                continue;
            };
            let folder = (!delimiter.is_empty())
                .then(|| rest.split_once(&delimiter))
                .flatten();
            let (name, entry) = match folder {
                Some((name, _)) => {
                    let folder = format!("{prefix}{name}{delimiter}");
                    let entry =
                        format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
                    (folder, entry)
                }
                None => {
                    let size = body.len();
                    let entry = format!(
                        "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>{etag}</ETag></Contents>"
                    );
                    (key.clone(), entry)
                }
            };
            entries.insert(name, entry);
        }
        let entries: String = entries.into_values().collect();
        let body = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        );
        Answer::new(200, body)
    }
}

fn read_request(
    input: &mut BufReader<TcpStream>,
    output: &mut TcpStream,
) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let mut request = Request {
        method: words.next().unwrap_or_default().to_owned(),
        target: words.next().unwrap_or_default().to_owned(),
        ..Request::default()
    };
    loop {
        line.clear();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
        request.headers.insert(name, value);
    }
    if request.header("expect").is_some() {
        output.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let length = request.header("content-length").unwrap_or("0");
    request.body = vec![0; length.parse().unwrap_or_default()];
    input.read_exact(&mut request.body)?;
    Ok(Some(request))
}

fn write_answer(output: &mut TcpStream, request: &Request, answer: &Answer) -> std::io::Result<()> {
    let (status, length) = (answer.status, answer.body.len());
    let mut head = format!("HTTP/1.1 {status} Told\r\nContent-Length: {length}\r\n");
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    output.write_all(head.as_bytes())?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let (piece, pause) = answer.drip.unwrap_or((usize::MAX, Duration::ZERO));
    for piece in answer.body.chunks(piece) {
        output.write_all(piece)?;
        output.flush()?;
        std::thread::sleep(pause);
    }
    Ok(())
}
