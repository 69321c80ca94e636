//! The node's network: a namespace of its own, in which a bridge joins the pods, and a
//! cable to this machine. This machine's end carries the gateway's address, so pods reach
//! servers here, and the service address of the API server, so they find it as in any
//! cluster with nothing that forwards or translates. They reach nothing else.
//!
//! The kernel takes all of it away with the namespace, that is, with the process in it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::number::Number;
use super::process::{Process, Processes};
use super::{node, site::Site};

/// Name of the process that holds the namespace.
const HOLDER: &str = "network";

/// Makes the network; does nothing where it is made.
pub(super) fn ensure(site: &Site, processes: &Processes) -> Result<()> {
    if processes.find(HOLDER).is_some() {
        return Ok(());
    }
    // A node that has outlived its holder keeps the network, but nobody can enter it.
    node::crash(processes)?;
    wait_until_gone(&site.number.interface())?;
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]);
    let holder = processes.start(HOLDER, command)?;
    wait_for_namespace(holder)?;

    let number = site.number;
    let interface = number.interface();
    let bits = Number::POD_NETWORK_BITS;
    let host_end = format!(
        "link add {interface} type veth peer name uplink netns {holder}\n\
         address add {gateway}/{bits} dev {interface}\n\
         address add {service}/32 dev {interface}\n\
         link set {interface} up\n",
        holder = holder.id(),
        gateway = number.gateway(),
        service = number.service_address(),
    );
    let node_end = format!(
        "link set lo up\n\
         link add pods type bridge\n\
         address add {node}/{bits} dev pods\n\
         link set uplink master pods\n\
         link set uplink up\n\
         link set pods up\n\
         route add default via {gateway}\n",
        node = number.node_address(),
        gateway = number.gateway(),
    );
    run_batch(Command::new("ip"), &host_end)?;
    let mut inside = Command::new("nsenter");
    inside.args([&namespace(holder), "ip"]);
    run_batch(inside, &node_end)
}

/// A command that runs what follows it in the node's network.
pub(super) fn entrance(processes: &Processes) -> Result<Command> {
    let holder = processes.find(HOLDER).context("the node has no network")?;
    let mut command = Command::new("nsenter");
    command.arg(namespace(holder));
    Ok(command)
}

fn namespace(holder: Process) -> String {
    format!("--net=/proc/{}/ns/net", holder.id())
}

/// Waits until the holder has left this machine's own namespace.
fn wait_for_namespace(holder: Process) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let ours = fs::read_link("/proc/self/ns/net")?;
    let theirs = format!("/proc/{}/ns/net", holder.id());
    while fs::read_link(&theirs).context("the network's holder ended")? == ours {
        ensure!(Instant::now() < deadline, "unshare makes no network");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until the kernel has taken the cable away.
fn wait_until_gone(interface: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new("/sys/class/net").join(interface).exists() {
        ensure!(Instant::now() < deadline, "{interface} does not go away");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn run_batch(mut ip: Command, lines: &str) -> Result<()> {
    let mut child = ip
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("can't start ip")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "ip can't make the network: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
