//! A Kubernetes cluster on this machine for people: `make cluster` and `make cluster-down`.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use harness::cluster::{Names, PeoplesCluster, Up, serve_names};
use harness::tool::tools_folder;

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
            // kubectl is there; once, however often this is evaluated.
            let tools = tools_folder().display().to_string();
            println!(
                "case \":$PATH:\" in *\":{tools}:\"*) ;; *) export PATH=\"{tools}:$PATH\" ;; esac"
            );
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
    std::io::stdout().write_all(directions(&cluster, &up).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn directions(cluster: &PeoplesCluster, up: &Up) -> String {
    let mut text = format!(
        "The cluster runs.

  export KUBECONFIG={kubeconfig}
  eval \"$({program} environment)\"     (or all at once: kubectl in PATH, keys of the S3 server)
  kubectl apply --server-side -k config/

S3 server, the same here and in pods: {endpoint}
  bucket                       {bucket}
  keys for pods                Secret {secret} in namespace default
  what it takes to use them    --allow-endpoint and a RoleBinding, see docs/security.md

Images, made of the programs that were built last:
",
        kubeconfig = cluster.kubeconfig().display(),
        endpoint = cluster.s3_endpoint(),
        bucket = cluster.bucket(),
        secret = cluster.secret(),
        program = std::env::args().next().unwrap_or_default(),
    );
    for image in &up.images {
        text.push_str(&format!("  {image}\n"));
    }
    for binary in &up.missing {
        text.push_str(&format!(
            "  none of {binary}: build it and run this again\n"
        ));
    }
    text.push_str(&format!("\nLogs: {}\n", cluster.logs().display()));
    text.push_str("End:  make cluster-down\n");
    text
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
