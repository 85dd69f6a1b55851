//! `auster bench relay-switches`: the equivalent of many `auster relay switch`, in one process.
//! Each relay has its own session and QUIC connection; connections of switches are assigned to the
//! relays in turn.

use std::path::PathBuf;
use std::time::Duration;

use net::method::{Method, Protocol};
use net::tls::{Role, Security};
use net::transport::{Limits, Listener};
use relay::{Config, SessionId, Side};
use tokio::task::JoinSet;
use tunnel::{End, EndConfig, OPENFLOW, Scheduling};

use crate::certificates;
use cli::failure::Failure;
use cli::output::say;

/// Period over which the relays' first attempts are spread evenly. Relays that lose their
/// connection notice within a second of each other, and retry on their own clocks.
const DIALLED_WITHIN: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    switches: u32,
    #[arg(long)]
    connect: String,
    /// With `controllerca.pem`, and `switchN-privkey.pem` and `switchN-cert.pem` from 0 on
    #[arg(long, value_name = "DIR")]
    certificates: PathBuf,
}

pub fn run(args: Args) -> Result<(), Failure> {
    cli::turns::ask_for_short_turns();
    cli::process::raise_file_limit();
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::machine)?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> Result<(), Failure> {
    let method = |text: &str| {
        Method::parse(text, Protocol::OpenFlow)
            .map_err(|error| Failure::usage(format!("{text}: {error}")))
    };
    let connect = method(&args.connect)?;
    let security = |n: u32| {
        let files = certificates::files(&args.certificates, &format!("switch{n}"), "controllerca");
        certificates::security(&files, Role::Controller)
    };
    let limits = Limits::default();
    let mut listener = Listener::bind(&method("ptcp:0:127.0.0.1")?, &Security::plain(), limits)
        .await
        .map_err(Failure::network)?;
    say!("listening on {}", listener.local());
    let mut tunnels = JoinSet::new();
    let mut ends = Vec::new();
    for n in 0..args.switches {
        let security = security(n)?;
        let config = EndConfig {
            session: Config::new(Side::Switch),
            targets: Default::default(),
            target_security: security.clone(),
            scheduling: Scheduling::default(),
        };
        let end = End::new(config, SessionId(tunnel::random()), "controller");
        let (dialling, connect) = (end.clone(), connect.clone());
        let turn = DIALLED_WITHIN * n / args.switches;
        tunnels.spawn(async move {
            tokio::time::sleep(turn).await;
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
