//! `auster qos`: requests for the data path of a running controller, through its API.

mod api;
pub mod client;
mod show;
mod verify;
mod words;

use hyper::Method;
use serde_json::Value;

pub use api::ApiArgs;
use cli::failure::Failure;
use cli::runtime::block_on;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show queues, services, policies and circuits, their origin and state
    #[command(after_help = "\
Example:
  auster qos show
  auster qos show --json | jq .policies")]
    Show(ShowArgs),
    /// Show the paths of circuits, and their traffic
    #[command(after_help = "\
Example:
  auster qos circuits")]
    Circuits(ShowArgs),
    /// Check hop by hop whether packets get the queue, meter and mark of policies and circuits
    #[command(after_help = "\
Exit code 0 if every hop that had traffic says yes, and any had; 1 else.
Example:
  auster qos verify
  auster qos verify voice-first --seconds 30 --json | jq '.policies[].hops'")]
    Verify(verify::Args),
    /// Create or replace queues, a service, a policy or a circuit
    #[command(after_help = "\
Fields:
  queues PORT    rate, and of each queue queue.N.FIELD: class, min, max, burst_bytes, priority, dscp
  service NAME   src, dst, proto, src_port, dst_port, dscp, vlan
  policy NAME    service, priority, queue, mark, drop, meter.rate, meter.burst_bytes, meter.remark,
                 and where: ports, switches, or from and to; everywhere without
  circuit NAME   from, to, service, rate, queue, priority, dscp, admission, both
Example:
  auster qos set queues 1:2 rate=100mbit queue.1.class=gold queue.1.min=20mbit queue.1.dscp=46
  auster qos set service voice proto=udp dst_port=5060
  auster qos set policy voice-first service=voice queue=gold
  auster qos set circuit backup from=10.0.0.1 to=10.0.0.2 rate=10mbit admission=true")]
    Set(SetArgs),
    /// Delete queues, a service, a policy or a circuit
    #[command(after_help = "\
Example:
  auster qos delete policy voice-first")]
    Delete(DeleteArgs),
}

#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    api: ApiArgs,

    /// Print the API's answer
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct SetArgs {
    #[arg(value_enum)]
    kind: Kind,

    /// The name; for queues the port, as SWITCH:PORT
    name: String,

    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,

    #[command(flatten)]
    api: ApiArgs,

    /// Print the API's answer
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct DeleteArgs {
    #[arg(value_enum)]
    kind: Kind,

    /// The name; for queues the port, as SWITCH:PORT
    name: String,

    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Queues,
    Service,
    Policy,
    Circuit,
}

impl Kind {
    fn path(self, name: &str) -> Result<String, Failure> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(Failure::usage(format!(
                "'{name}' is no name: letters, digits, '-', '_' and '.', and ':' in a port"
            )));
        }
        let kind = match self {
            Kind::Queues => "queues",
            Kind::Service => "services",
            Kind::Policy => "policies",
            Kind::Circuit => "circuits",
        };
        Ok(format!("/v1/{kind}/{name}"))
    }
}

pub fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::Show(args) => show::all(&args.api.client()?, args.json).await,
            Command::Circuits(args) => show::circuits(&args.api.client()?, args.json).await,
            Command::Verify(args) => verify::run(args).await,
            Command::Set(args) => set(args).await,
            Command::Delete(args) => {
                let client = args.api.client()?;
                let path = args.kind.path(&args.name)?;
                client.ask(Method::DELETE, &path, None).await.map(drop)
            }
        }
    })
}

async fn set(args: SetArgs) -> Result<(), Failure> {
    let document = words::document(&args.fields);
    let document = document.map_err(|problems| Failure::usage(problems.join("; ")))?;
    let path = args.kind.path(&args.name)?;
    let client = args.api.client()?;
    let made = client.ask(Method::PUT, &path, Some(&document)).await?;
    match args.json {
        true => print(&made),
        false => show::print_document(&made),
    }
    Ok(())
}

fn print(document: &Value) {
    write(&format!("{document:#}"));
}

fn write(text: &str) {
    cli::output::say!("{text}");
}
