//! A proxy in front of an HTTP server that breaks what it is told to, when it is told to.
//!
//! Every request is read whole, forwarded on a connection of its own, and its answer read
//! whole before a byte of it is passed on; so a fault strikes at an exact byte. Which request
//! a fault strikes depends on the requests' order alone, never on time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// What happens to a request or its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answered with this status and S3 error code; the server never sees the request.
    Status(u16, &'static str),
    /// The server gets the request and acts on it; the connection is reset before the answer.
    LoseAnswer,
    /// The connection is reset before the server sees the request.
    LoseRequest,
    /// The connection is reset after so many bytes of the answer's body, or a few less; before the
    /// last byte of the answer in any case.
    ResetBody(usize),
    /// The connection is closed in good order after so many bytes of the answer's body; before the
    /// last byte of the answer in any case.
    ShortBody(usize),
    /// After so many bytes of the answer's body nothing comes any more.
    StallBody(usize),
    /// The answer comes late.
    Delay(Duration),
    /// The server never sees the request, and no answer comes, until the client gives up.
    Silence,
}

/// Which requests meet a fault: of those that match, all after `skip`, `times` of them.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Method, or any.
    pub method: Option<&'static str>,
    /// Part of path and query, as sent; empty for any.
    pub target: String,
    /// So many that match pass unharmed first.
    pub skip: u32,
    /// So many meet the fault.
    pub times: u32,
    /// Of those, one in so many does, chosen by the proxy's seed; 1 for all.
    pub one_in: u64,
    /// What they meet.
    pub fault: Fault,
}

impl Rule {
    /// The next request of this method whose target holds `target` meets `fault`.
    pub fn once(method: &'static str, target: &str, fault: Fault) -> Self {
        Self {
            method: Some(method),
            target: target.to_string(),
            skip: 0,
            times: 1,
            one_in: 1,
            fault,
        }
    }

    /// The same for so many requests.
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// The same after so many that match.
    pub fn after(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// One in so many meets the fault, for as long as the proxy runs.
    pub fn one_in(self, one_in: u64) -> Self {
        Self {
            one_in,
            times: u32::MAX,
            ..self
        }
    }
}

/// A request that came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// What it met.
    pub fault: Option<Fault>,
}

/// A running proxy; it ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    seen: Vec<Seen>,
    random: u64,
}

impl FaultProxy {
    /// Starts a proxy in front of `server`, without rules.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn start(server: SocketAddr, seed: u64) -> Self {
        match Self::try_start(server, seed) {
            Ok(proxy) => proxy,
            Err(error) => panic!("the proxy does not start: {error:#}"),
        }
    }

    fn try_start(server: SocketAddr, seed: u64) -> Result<Self> {
        let state = Arc::new(Mutex::new(State {
            rules: Vec::new(),
            seen: Vec::new(),
            random: seed,
        }));
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("fault-proxy".to_string())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        result = accept(listener, server, shared) => {
                            if let Err(error) = result {
                                eprintln!("fault proxy: {error:#}");
                            }
                        }
                    }
                });
            })?;
        Ok(Self {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// URL to give as endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a rule; of several that match a request, the first that is not used up strikes.
    pub fn add(&self, rule: Rule) {
        lock(&self.state).rules.push(rule);
    }

    /// Forgets all rules and what was seen.
    pub fn clear(&self) {
        let mut state = lock(&self.state);
        state.rules.clear();
        state.seen.clear();
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.state).seen.clone()
    }

    /// How many requests have met a fault.
    pub fn struck(&self) -> usize {
        let state = lock(&self.state);
        state
            .seen
            .iter()
            .filter(|seen| seen.fault.is_some())
            .count()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Notes a request and says what it meets.
    fn judge(&mut self, method: &str, target: &str) -> Option<Fault> {
        let mut fault = None;
        for rule in &mut self.rules {
            let matches =
                rule.method.is_none_or(|wanted| wanted == method) && target.contains(&rule.target);
            if !matches || rule.times == 0 {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if !next_random(&mut self.random).is_multiple_of(rule.one_in.max(1)) {
                continue;
            }
            if rule.times != u32::MAX {
                rule.times -= 1;
            }
            fault = Some(rule.fault.clone());
            break;
        }
        self.seen.push(Seen {
            method: method.to_string(),
            target: target.to_string(),
            fault: fault.clone(),
        });
        fault
    }
}

/// SplitMix64.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    state: Arc<Mutex<State>>,
) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // A client that goes away is no news.
            let _ = serve(client, server, &state).await;
        });
    }
}

async fn serve(mut client: TcpStream, server: SocketAddr, state: &Mutex<State>) -> Result<()> {
    let mut unread = Vec::new();
    while let Some(request) = read_request(&mut client, &mut unread).await? {
        let fault = lock(state).judge(&request.method, &request.target);
        match fault {
            Some(Fault::Status(status, code)) => {
                client
                    .write_all(&error_answer(&request, status, code))
                    .await?;
                continue;
            }
            Some(Fault::LoseRequest) => return reset(client),
            Some(Fault::Silence) => return wait_for_end(client).await,
            _ => {}
        }
        let answer = forward(server, &request).await?;
        let body_start = answer.head_length;
        // Never all of it: a client keeps a connection whose answer was whole, and its next request
        // on that would be lost before it comes by here.
        let cut = |after: usize| (body_start + after).min(answer.bytes.len() - 1);
        match fault {
            Some(Fault::LoseAnswer) => return reset(client),
            Some(Fault::ResetBody(after)) => {
                // A reset overtakes what the client has not read yet, so it may see less.
                client.write_all(&answer.bytes[..cut(after)]).await?;
                return reset(client);
            }
            Some(Fault::ShortBody(after)) => {
                client.write_all(&answer.bytes[..cut(after)]).await?;
                client.shutdown().await?;
                return Ok(());
            }
            Some(Fault::StallBody(after)) => {
                client.write_all(&answer.bytes[..cut(after)]).await?;
                client.flush().await?;
                return wait_for_end(client).await;
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                client.write_all(&answer.bytes).await?;
            }
            _ => client.write_all(&answer.bytes).await?,
        }
    }
    Ok(())
}

/// Waits until the client gives up.
async fn wait_for_end(mut client: TcpStream) -> Result<()> {
    let mut rest = [0_u8; 1];
    let _ = client.read(&mut rest).await;
    Ok(())
}

/// Ends a connection as a crash would.
fn reset(client: TcpStream) -> Result<()> {
    client.set_zero_linger()?;
    Ok(())
}

struct Request {
    method: String,
    target: String,
    head: Vec<u8>,
    body: Vec<u8>,
}

struct Answer {
    head_length: usize,
    bytes: Vec<u8>,
}

/// The next request of a connection; none if the client has closed it.
async fn read_request(client: &mut TcpStream, unread: &mut Vec<u8>) -> Result<Option<Request>> {
    let Some(head_length) = fill_head(client, unread).await? else {
        return Ok(None);
    };
    let rest = unread.split_off(head_length);
    let head = std::mem::replace(unread, rest);
    let text = std::str::from_utf8(&head).context("the head is not UTF-8")?;
    let mut words = text.split(' ');
    let method = words.next().unwrap_or_default().to_string();
    let target = words.next().unwrap_or_default().to_string();
    let length: usize = match header(text, "content-length") {
        Some(length) => length.parse().context("content-length")?,
        None if header(text, "transfer-encoding").is_some() => bail!("chunked requests"),
        None => 0,
    };
    if header(text, "expect").is_some() {
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let head = rewrite_head(text, &["expect", "connection"], "Connection: close\r\n");
    while unread.len() < length {
        if client.read_buf(unread).await? == 0 {
            bail!("the client closed within a body");
        }
    }
    let rest = unread.split_off(length);
    let body = std::mem::replace(unread, rest);
    Ok(Some(Request {
        method,
        target,
        head,
        body,
    }))
}

/// Reads until a head is complete; its length, or none at the end of the connection.
async fn fill_head(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Result<Option<usize>> {
    loop {
        if let Some(end) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Ok(Some(end + 4));
        }
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
}

async fn forward(server: SocketAddr, request: &Request) -> Result<Answer> {
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(&request.head).await?;
    upstream.write_all(&request.body).await?;
    let mut bytes = Vec::new();
    upstream.read_to_end(&mut bytes).await?;
    let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") else {
        bail!("the server gave no answer");
    };
    let body = bytes.split_off(end + 4);
    let text = std::str::from_utf8(&bytes).context("the head is not UTF-8")?;
    let mut whole = rewrite_head(text, &["connection"], "");
    let head_length = whole.len();
    whole.extend_from_slice(&body);
    Ok(Answer {
        head_length,
        bytes: whole,
    })
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The head without some headers and with others added.
fn rewrite_head(head: &str, without: &[&str], added: &str) -> Vec<u8> {
    let mut rewritten = String::with_capacity(head.len() + added.len());
    for line in head.trim_end().split("\r\n") {
        let name = line.split(':').next().unwrap_or_default();
        if !without
            .iter()
            .any(|unwanted| name.eq_ignore_ascii_case(unwanted))
        {
            rewritten.push_str(line);
            rewritten.push_str("\r\n");
        }
    }
    rewritten.push_str(added);
    rewritten.push_str("\r\n");
    rewritten.into_bytes()
}

fn error_answer(request: &Request, status: u16, code: &str) -> Vec<u8> {
    let body = match request.method.as_str() {
        "HEAD" => String::new(),
        _ => format!("<Error><Code>{code}</Code><Message>as told</Message></Error>"),
    };
    format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rules: Vec<Rule>) -> State {
        State {
            rules,
            seen: Vec::new(),
            random: 7,
        }
    }

    #[test]
    fn rules_strike_the_requests_they_name() {
        let slow_down = Fault::Status(503, "SlowDown");
        let mut state = state(vec![
            Rule::once("GET", "/b/x", slow_down.clone())
                .after(1)
                .times(2),
            Rule::once("PUT", "", Fault::LoseAnswer),
        ]);
        let mut met = Vec::new();
        for (method, target) in [
            ("GET", "/b/x"),
            ("GET", "/b/y"),
            ("GET", "/b/x"),
            ("PUT", "/b/x"),
            ("GET", "/b/x?a"),
            ("GET", "/b/x"),
            ("PUT", "/b/x"),
        ] {
            met.push(state.judge(method, target));
        }
        let lose = Some(Fault::LoseAnswer);
        let slow = Some(slow_down);
        assert_eq!(met, [None, None, slow.clone(), lose, slow, None, None]);
    }

    #[test]
    fn chance_depends_on_the_seed_alone() {
        let struck = |seed| {
            let mut state = state(vec![Rule::once("GET", "", Fault::LoseAnswer).one_in(5)]);
            state.random = seed;
            let met: Vec<bool> = (0..100)
                .map(|_| state.judge("GET", "/").is_some())
                .collect();
            met
        };
        assert_eq!(struck(1), struck(1));
        assert_ne!(struck(1), struck(2));
        let count = struck(1).iter().filter(|struck| **struck).count();
        assert!((5..40).contains(&count), "{count}");
    }

    #[test]
    fn heads_are_rewritten() {
        let head = "PUT /b/x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n";
        let rewritten = rewrite_head(head, &["expect"], "Connection: close\r\n");
        assert_eq!(
            String::from_utf8(rewritten).expect("text"),
            "PUT /b/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        );
    }
}
