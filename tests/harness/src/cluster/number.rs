//! What keeps clusters on one machine apart: from a small number follow every address,
//! port and name that the whole machine shares.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result};

/// A cluster's number on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(u8);

/// Ports of the programs that listen on loopback, as offsets from a cluster's first port.
#[derive(Debug, Clone, Copy)]
pub(super) enum Port {
    EtcdClient,
    EtcdPeer,
    ControllerManager,
    Scheduler,
    /// Of the API server where there is no node; with one it is 443 at the service address.
    ApiServer,
    /// Of a program beside the cluster that the API server asks.
    Webhooks,
}

impl Number {
    const COUNT: u8 = 32;
    /// Below are those that tests take by themselves.
    const FIRST_FOR_PEOPLE: u8 = 24;
    /// Below the ports that the kernel gives out, so that no connection takes one while
    /// its server is being restarted.
    const FIRST_PORT: u16 = 21_000;
    const PORTS_EACH: u16 = 10;

    /// Numbers that tests may take.
    pub(super) fn for_tests() -> impl Iterator<Item = Self> {
        (0..Self::FIRST_FOR_PEOPLE).map(Self)
    }

    /// Of a cluster that people start by hand: the first that tests do not take, or the one
    /// that `SIDECARJOB_CLUSTER_NUMBER` names.
    pub(super) fn for_people() -> Result<Self> {
        let range = Self::FIRST_FOR_PEOPLE..Self::COUNT;
        let Ok(text) = std::env::var("SIDECARJOB_CLUSTER_NUMBER") else {
            return Ok(Self(Self::FIRST_FOR_PEOPLE));
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Self).with_context(|| {
            format!(
                "SIDECARJOB_CLUSTER_NUMBER is {text}; it has to be {} to {}",
                range.start,
                range.end - 1
            )
        })
    }

    pub(super) fn port(self, port: Port) -> u16 {
        Self::FIRST_PORT + u16::from(self.0) * Self::PORTS_EACH + port as u16
    }

    pub(super) fn loopback(self, port: Port) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port(port)).into()
    }

    /// Eight networks of 256 addresses each for a cluster, out of 198.18.0.0/15, which
    /// RFC 2544 keeps for tests between machines: no company network uses it.
    fn address(self, network: u8, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.0 * 8 + network, host)
    }

    /// This machine as the pods see it.
    pub(super) fn gateway(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// The node as this machine and the pods see it.
    pub(super) fn node_address(self) -> Ipv4Addr {
        self.address(0, 2)
    }

    /// The first address that a pod may have.
    pub(super) fn first_pod_address(self) -> Ipv4Addr {
        self.address(0, 10)
    }

    /// Bits of [`Self::pod_network`].
    pub(super) const POD_NETWORK_BITS: u8 = 22;

    pub(super) fn pod_network(self) -> String {
        format!("{}/{}", self.address(0, 0), Self::POD_NETWORK_BITS)
    }

    pub(super) fn service_network(self) -> String {
        format!("{}/24", self.address(4, 0))
    }

    /// The address of the service `kubernetes`: always the first of the service network.
    pub(super) fn service_address(self) -> Ipv4Addr {
        self.address(4, 1)
    }

    /// This machine's end of the cable to the node.
    pub(super) fn interface(self) -> String {
        format!("sidecarjob{self}")
    }

    /// The control group under which all pods are.
    pub(super) fn cgroup(self) -> String {
        format!("sidecarjob-{self}")
    }

    /// Whether nobody else uses what belongs to the number. Another user of the machine may:
    /// locks are for each user's own clusters.
    pub(super) fn is_free(self) -> bool {
        let ports_free = (0..Self::PORTS_EACH)
            .map(|offset| self.port(Port::EtcdClient) + offset)
            .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        let interface = format!("/sys/class/net/{}", self.interface());
        ports_free && !std::path::Path::new(&interface).exists()
    }
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clusters_share_no_port_and_no_network() {
        let mut ports = BTreeSet::new();
        let mut networks = BTreeSet::new();
        let mut count = 0;
        for number in (0..Number::COUNT).map(Number) {
            ports.extend((0..Number::PORTS_EACH).map(|at| number.port(Port::EtcdClient) + at));
            // A pod network is four of the eight networks that a number has.
            let [_, _, network, _] = number.gateway().octets();
            networks.extend(network..network + 4);
            networks.insert(number.service_address().octets()[2]);
            count += 1;
        }
        assert_eq!(ports.len(), count * usize::from(Number::PORTS_EACH));
        assert_eq!(networks.len(), count * 5);
    }

    #[test]
    fn interface_names_are_short_enough_for_the_kernel() {
        for number in (0..Number::COUNT).map(Number) {
            assert!(number.interface().len() < 16, "{}", number.interface());
        }
    }
}
