//! A name server for pods: it knows the few names that there are and denies all others, so
//! that a look-up ends at once.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

/// Length of the header of a query and of an answer (RFC 1035, 4.1.1).
const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_INTERNET: u16 = 1;

/// The names that it knows, all in lower case and without a dot at the end.
#[derive(Debug, Clone)]
pub struct Names(Vec<(String, Ipv4Addr)>);

impl Names {
    /// `gateway` is what pods call the machine; `api_server` goes by its usual names.
    pub fn new(gateway: Ipv4Addr, api_server: Ipv4Addr) -> Self {
        let names = [
            ("gateway", gateway),
            ("kubernetes", api_server),
            ("kubernetes.default", api_server),
            ("kubernetes.default.svc", api_server),
            ("kubernetes.default.svc.cluster.local", api_server),
        ];
        Self(
            names
                .map(|(name, address)| (name.to_owned(), address))
                .to_vec(),
        )
    }

    fn find(&self, name: &str) -> Option<Ipv4Addr> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, address)| *address)
    }

    /// The answer to a query; none to what is none.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (name, end) = question_name(query)?;
        let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
        let question = query.get(HEADER..end + 4)?;
        let address = self.find(&name);
        let told = address.filter(|_| kind == TYPE_A);

        // An answer, authoritative, recursion wanted and had; the last digit: no such name.
        let flags: u16 = if address.is_some() { 0x8580 } else { 0x8583 };
        let mut answer = query[..2].to_vec();
        for field in [flags, 1, u16::from(told.is_some()), 0, 0] {
            answer.extend(field.to_be_bytes());
        }
        answer.extend(question);
        if let Some(address) = told {
            const NAME_OF_QUESTION: u16 = 0xC000 | HEADER as u16;
            const SECONDS_VALID: u16 = 5;
            for field in [
                NAME_OF_QUESTION,
                TYPE_A,
                CLASS_INTERNET,
                0,
                SECONDS_VALID,
                4,
            ] {
                answer.extend(field.to_be_bytes());
            }
            answer.extend(address.octets());
        }
        Some(answer)
    }
}

/// The name asked for, and where it ends.
fn question_name(query: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = query.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += length;
    }
}

/// A name server that runs until this is dropped.
#[derive(Debug)]
pub(super) struct NameServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    pub fn start(gateway: Ipv4Addr, names: Names) -> Result<Self> {
        let socket = bind(gateway)?;
        // How long the end may take.
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                answer_one(&socket, &names);
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers until the process is ended.
///
/// # Errors
/// If nobody may listen there.
pub fn serve(gateway: Ipv4Addr, names: &Names) -> Result<()> {
    let socket = bind(gateway)?;
    loop {
        answer_one(&socket, names);
    }
}

fn bind(gateway: Ipv4Addr) -> Result<UdpSocket> {
    let address = SocketAddr::from((gateway, 53));
    UdpSocket::bind(address).with_context(|| format!("can't listen at {address}"))
}

fn answer_one(socket: &UdpSocket, names: &Names) {
    let mut query = [0; 1500];
    let Ok((length, asker)) = socket.recv_from(&mut query) else {
        return;
    };
    if let Some(answer) = names.answer(&query[..length]) {
        // Whoever gets no answer asks again.
        let _ = socket.send_to(&answer, asker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 8, 1);
    const API_SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 12, 1);
    const TYPE_AAAA: u16 = 28;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).unwrap());
            query.extend(label.as_bytes());
        }
        query.push(0);
        query.extend(kind.to_be_bytes());
        query.extend(CLASS_INTERNET.to_be_bytes());
        query
    }

    /// Code of the answer and how many records it has.
    fn ask(name: &str, kind: u16) -> (u8, u8, Vec<u8>) {
        let names = Names::new(GATEWAY, API_SERVER);
        let answer = names.answer(&query(name, kind)).unwrap();
        assert_eq!(answer[..2], [0xAB, 0xCD], "the id is the query's");
        (answer[3] & 15, answer[7], answer)
    }

    #[test]
    fn known_names_have_an_address() {
        let (code, records, answer) = ask("Gateway", TYPE_A);
        assert_eq!((code, records), (0, 1));
        assert!(answer.ends_with(&GATEWAY.octets()));
        let (_, _, answer) = ask("kubernetes.default.svc.cluster.local", TYPE_A);
        assert!(answer.ends_with(&API_SERVER.octets()));
    }

    #[test]
    fn known_names_have_no_address_of_another_kind() {
        let (code, records, _) = ask("gateway", TYPE_AAAA);
        assert_eq!((code, records), (0, 0));
    }

    #[test]
    fn other_names_do_not_exist() {
        let (code, records, _) = ask("gateway.default.svc.cluster.local", TYPE_A);
        assert_eq!((code, records), (3, 0));
    }

    #[test]
    fn what_is_no_query_has_no_answer() {
        let names = Names::new(GATEWAY, API_SERVER);
        let whole = query("gateway", TYPE_A);
        for length in 0..whole.len() {
            assert_eq!(names.answer(&whole[..length]), None, "{length}");
        }
    }
}
