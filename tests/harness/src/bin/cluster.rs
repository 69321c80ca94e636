//! A Kubernetes cluster on this machine for people: `make cluster` and `make cluster-down`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use harness::cluster::{Names, PeoplesCluster, Up, serve_names};

/// A Kubernetes cluster on this machine, with an S3 server beside it.
#[derive(Debug, Parser)]
#[command(name = "cluster")]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start what is missing of it, and say how to use it
    Up,
    /// End it and remove all of it
    Down,
    /// Say which of its parts run; fails if one does not
    Status,
    /// Print the path of its kubeconfig
    Kubeconfig,
    /// Print the environment of programs that are to use it
    Environment,
    /// Answer the pods' questions for names
    #[command(hide = true)]
    NameServer {
        gateway: Ipv4Addr,
        api_server: Ipv4Addr,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: &Action) -> Result<ExitCode> {
    match action {
        Action::Up => up(),
        Action::Down => {
            let was_there = PeoplesCluster::down()?;
            println!(
                "{}",
                if was_there {
                    "the cluster is gone"
                } else {
                    "there is no cluster"
                }
            );
            Ok(ExitCode::SUCCESS)
        }
        Action::Status => status(),
        Action::Kubeconfig => {
            println!("{}", find()?.kubeconfig().display());
            Ok(ExitCode::SUCCESS)
        }
        Action::Environment => {
            let cluster = find()?;
            println!("export KUBECONFIG={}", cluster.kubeconfig().display());
            for (name, value) in cluster.s3_environment() {
                println!("export {name}={value}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::NameServer {
            gateway,
            api_server,
        } => {
            serve_names(*gateway, &Names::new(*gateway, *api_server))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn up() -> Result<ExitCode> {
    let program = std::env::current_exe().context("can't find this program")?;
    let Some((cluster, up)) = PeoplesCluster::up(&repository(), program)? else {
        return Ok(ExitCode::FAILURE);
    };
    print_directions(&cluster, &up);
    Ok(ExitCode::SUCCESS)
}

fn print_directions(cluster: &PeoplesCluster, up: &Up) {
    let kubeconfig = cluster.kubeconfig();
    println!("The cluster runs.\n");
    println!("  export KUBECONFIG={}", kubeconfig.display());
    println!("  kubectl get nodes            kubectl is in the tools' folder, see `make tools`\n");
    println!(
        "S3 server, the same here and in pods: {}",
        cluster.s3_endpoint()
    );
    println!("  bucket                       {}", cluster.bucket());
    println!(
        "  keys for pods                Secret {} in namespace default",
        cluster.secret()
    );
    println!("  keys for this shell          eval \"$(target/debug/cluster environment)\"\n");
    println!("Images (imagePullPolicy: IfNotPresent):");
    for image in &up.images {
        println!("  {image}");
    }
    for binary in &up.missing {
        println!("  none of {binary}: build it and run this again");
    }
    println!("\nLogs: {}", cluster.logs().display());
    println!("End:  make cluster-down");
}

fn status() -> Result<ExitCode> {
    let Some(cluster) = PeoplesCluster::find()? else {
        println!("there is no cluster");
        return Ok(ExitCode::FAILURE);
    };
    let parts = cluster.parts()?;
    for (name, runs) in &parts {
        println!("{name:<20} {}", if *runs { "runs" } else { "does not run" });
    }
    let all_run = parts.iter().all(|(_, runs)| *runs);
    Ok(if all_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn find() -> Result<PeoplesCluster> {
    PeoplesCluster::find()?.context("there is no cluster: run `make cluster`")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
