//! Addresses that a server named by somebody else must not lead to: those of this machine, and
//! those at which clouds tell a machine its credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of metadata services that are not link-local.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// What is wrong with an address, in words; `None` if servers may be there.
///
/// ```
/// use storage::address::objection;
/// assert_eq!(objection("169.254.169.254".parse().unwrap()), Some("link-local"));
/// assert_eq!(objection("::ffff:127.0.0.1".parse().unwrap()), Some("loopback"));
/// assert_eq!(objection("10.0.0.7".parse().unwrap()), None);
/// ```
pub fn objection(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => objection_v4(address),
        IpAddr::V6(address) => match within(address) {
            Some(inner) => objection_v4(inner),
            None => objection_v6(address),
        },
    }
}

fn objection_v4(address: Ipv4Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("loopback")
    } else if address.is_link_local() {
        Some("link-local")
    } else if address.octets()[0] == 0 {
        // Linux takes 0.0.0.0 for the machine itself.
        Some("unspecified")
    } else if address.is_multicast() || address.is_broadcast() {
        Some("multicast")
    } else if METADATA_V4.contains(&address) {
        Some("a metadata service's")
    } else {
        None
    }
}

fn objection_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("loopback")
    } else if address.is_unspecified() {
        Some("unspecified")
    } else if address.segments()[0] & 0xffc0 == 0xfe80 {
        Some("link-local")
    } else if address.is_multicast() {
        Some("multicast")
    } else if METADATA_V6.contains(&address) {
        Some("a metadata service's")
    } else {
        None
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4.
fn within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) => Some(pair(g, h)),
        // ::1 and :: are addresses of their own.
        (0, 0, 0, 0, 0, 0) if g != 0 => Some(pair(g, h)),
        (0x64, 0xff9b, 0, 0, 0, 0) => Some(pair(g, h)),
        (0x2002, ..) => Some(pair(b, c)),
        _ => None,
    }
}

/// The address that a host is written as, in each of the spellings that resolvers take: dotted,
/// with fewer parts, decimal, octal or hexadecimal (`127.1`, `2130706433`, `0x7f000001`), or IPv6
/// with or without brackets. `None` if it is a name.
///
/// ```
/// use storage::address::literal;
/// let metadata = literal("169.254.169.254");
/// assert!(metadata.is_some());
/// for spelling in ["2852039166", "0xa9fea9fe", "169.254.43518", "0251.0376.0251.0376"] {
///     assert_eq!(literal(spelling), metadata, "{spelling}");
/// }
/// assert_eq!(literal("s3.example.com"), None);
/// ```
pub fn literal(host: &str) -> Option<IpAddr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let without_zone = bare.split('%').next().unwrap_or(bare);
    if let Ok(address) = without_zone.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(address));
    }
    loose_v4(host).map(IpAddr::V4)
}

/// As `inet_aton` reads it: one to four numbers, the last of which fills what is left.
fn loose_v4(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let room = 8 * (4 - first.len());
    if *last >= 1 << room {
        return None;
    }
    let high = first.iter().fold(0, |sum, part| sum << 8 | part);
    u32::try_from(high << room | last).ok().map(Ipv4Addr::from)
}

fn number(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
    is_plain.then(|| u64::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_this_machine_and_of_metadata_is_objected_to() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "017700000001",
            "0",
            "0.0.0.0",
            "[::1]",
            "::",
            "::ffff:169.254.169.254",
            "[::ffff:a9fe:a9fe]",
            "::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "fe80::1%eth0",
            "fd00:ec2::254",
            "169.254.170.2",
            "0xA9FEA9FE",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "127.0.0.1.",
        ] {
            let address = literal(host).expect(host);
            assert!(objection(address).is_some(), "{host} is {address}");
        }
    }

    #[test]
    fn names_and_other_addresses_are_left_alone() {
        for host in [
            "s3.amazonaws.com",
            "localhost",
            "256.0.0.1.",
            "1.2.3.4.5",
            "0x",
            "a",
            "",
        ] {
            assert_eq!(literal(host), None, "{host}");
        }
        for host in [
            "10.1.2.3",
            "192.168.0.1",
            "8.8.8.8",
            "2001:db8::1",
            "fd00::1",
        ] {
            let address = literal(host).expect(host);
            assert_eq!(objection(address), None, "{host}");
        }
    }
}
