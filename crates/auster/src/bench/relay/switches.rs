//! `auster bench relay-switches`: what many `auster relay switch` are, in one process. Each has a
//! session and a QUIC connection of its own; the connections of switches are dealt to them in turn.

use std::path::PathBuf;
use std::sync::Arc;

use control::relay::{Config, SessionId, Side};
use net::method::{Method, Protocol};
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Limits, Listener};
use net::tunnel::{self, End, EndConfig, OPENFLOW, Scheduling};
use tokio::task::JoinSet;

use crate::failure::Failure;

#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    switches: u32,
    #[arg(long)]
    connect: String,
    #[arg(short = 'p')]
    private_key: PathBuf,
    #[arg(short = 'c')]
    certificate: PathBuf,
    #[arg(short = 'C')]
    ca_cert: PathBuf,
}

pub fn run(args: Args) -> Result<(), Failure> {
    crate::turns::ask_for_short_turns();
    crate::run::raise_file_limit();
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::machine)?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> Result<(), Failure> {
    let method = |text: &str| {
        Method::parse(text, Protocol::OpenFlow)
            .map_err(|error| Failure::usage(format!("{text}: {error}")))
    };
    let connect = method(&args.connect)?;
    let files = CredentialFiles {
        private_key: args.private_key,
        certificate: args.certificate,
        ca: args.ca_cert,
    };
    let credentials = files.load().map_err(Failure::machine)?;
    let security = Security::new(Arc::new(credentials)).expecting(Role::Controller);
    let limits = Limits::default();
    let mut listener = Listener::bind(&method("ptcp:0:127.0.0.1")?, &Security::plain(), limits)
        .await
        .map_err(Failure::network)?;
    println!("listening on {}", listener.local());
    let mut tunnels = JoinSet::new();
    let mut ends = Vec::new();
    for _ in 0..args.switches {
        let config = EndConfig {
            session: Config::new(Side::Switch),
            targets: Default::default(),
            target_security: security.clone(),
            scheduling: Scheduling::default(),
        };
        let end = End::new(config, SessionId(tunnel::random()), "controller");
        let (dialling, connect, security) = (end.clone(), connect.clone(), security.clone());
        tunnels.spawn(async move {
            tunnel::switch(&dialling, std::slice::from_ref(&connect), &security).await
        });
        ends.push(end);
    }
    for end in ends.iter().cycle() {
        tokio::select! {
            connection = listener.accept() => end.adopt(OPENFLOW, connection),
            Some(Ok(error)) = tunnels.join_next() => return Err(Failure::network(error)),
        }
    }
    Ok(())
}
