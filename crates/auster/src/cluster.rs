//! `auster cluster`: the members of a cluster as etcd has them, and what an operator wants of them.

mod changes;

use std::fmt::Write;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::failure::Failure;
use cli::output::say;
use cli::runtime::block_on;
use control::cluster::MemberId;
use serde_json::{Value, json};

use crate::run::Settings;
use crate::run::cluster::operator::View;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the members, which of them serves the switches, and who takes over after it
    #[command(after_help = STATUS_EXAMPLE)]
    Status(StatusArgs),
    /// Have a member serve all switches
    #[command(after_help = changes::MOVE_EXAMPLE)]
    Move(changes::MoveArgs),
    /// Have a member serve nothing until it is undone
    #[command(after_help = changes::DRAIN_EXAMPLE)]
    Drain(changes::DrainArgs),
}

const STATUS_EXAMPLE: &str = "\
Example:
  auster cluster status --config a.toml
  MEMBER  ADDRESS            READY  PLACE
  a       ssl:10.0.0.1:6655  yes    serves
  b       ssl:10.0.0.2:6655  yes    1
  c       ssl:10.0.0.3:6655  no     -

A member is ready when it reaches a switch and hears enough of the others, unless it is drained. The place is that in the order of
take-overs, from 1.
While etcd is away members go on by that order, and the first of them may be gone: ovs-vsctl
--columns=target,role list controller shows whom a switch obeys.";

#[derive(clap::Args)]
pub struct StatusArgs {
    /// The configuration of a member
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Print the members and the order as JSON
    #[arg(long)]
    json: bool,
}

/// The time that each member of etcd has to answer.
const ETCD_MAX: Duration = Duration::from_secs(5);

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Status(args) => status(&args),
        Command::Move(args) => {
            let done = with_etcd(&args.config, async |etcd| {
                changes::move_to(&etcd, &args.member).await
            })?;
            say!("{done}");
            Ok(())
        }
        Command::Drain(args) => {
            let done = with_etcd(&args.config, async |etcd| match args.undo {
                true => changes::undo_drain(&etcd, &args.member).await,
                false => changes::drain(&etcd, &args.member).await,
            })?;
            say!("{done}");
            Ok(())
        }
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let view = with_etcd(&args.config, async |etcd| View::read(&etcd).await)?;
    match args.json {
        true => say!("{}", document(&view)),
        false => say!("{}", table(&view).trim_end()),
    }
    Ok(())
}

/// Runs something with a client of the etcd that a member's configuration names.
fn with_etcd<T, F>(config: &Path, ask: impl FnOnce(etcd::Client) -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let settings = Settings::read(config)?;
    let Some(stated) = &settings.cluster else {
        let file = config.display();
        return Err(Failure::usage(format!(
            "{file}: no [cluster]: give the configuration of a member"
        )));
    };
    let security = stated.security(settings.credential_files())?;
    block_on(async { ask(stated.client(&security, ETCD_MAX)?).await })
}

fn table(view: &View) -> String {
    let mut rows = vec![["MEMBER", "ADDRESS", "READY", "PLACE"].map(str::to_owned)];
    for name in view.names() {
        let member = view.snapshot.members.get(name);
        let ready = match view.is_ready(name) {
            _ if view.drained.contains(name) => "drained",
            true => "yes",
            false => "no",
        };
        let place = view.order().iter().position(|place| place == name);
        let place = match place {
            Some(0) => "serves".to_owned(),
            Some(place) => place.to_string(),
            None => "-".to_owned(),
        };
        rows.push([
            name.to_string(),
            member.map_or("gone".to_owned(), |member| member.address.clone()),
            ready.to_owned(),
            place,
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2].map(width);
    let mut text = String::new();
    for [name, address, ready, place] in &rows {
        let [a, b, c] = widths;
        let _ = writeln!(text, "{name:a$}  {address:b$}  {ready:c$}  {place}");
    }
    text
}

fn document(view: &View) -> Value {
    let members = view.snapshot.members.iter().map(|(name, member)| {
        json!({
            "name": name.as_str(),
            "address": member.address,
            "ready": member.is_ready,
            "reads_schema": member.reads,
            "drained": view.drained.contains(name),
        })
    });
    let order = view.order().iter().map(MemberId::as_str);
    json!({
        "epoch": view.snapshot.epoch.map_or(0, |(epoch, _)| epoch),
        "schema": view.snapshot.schema.map(|(schema, _)| schema),
        "members": members.collect::<Vec<_>>(),
        "order": order.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use control::cluster::{Member, Order, Own, ShardId, Snapshot};

    use super::*;

    #[test]
    fn members_are_listed_by_name_with_their_places() {
        let id = |name: &str| MemberId::new(name).unwrap();
        let member = |address: &str, is_ready| Member {
            address: address.to_owned(),
            is_ready,
            reads: 1,
        };
        let own = Own {
            order: Order::repeating(&[id("b"), id("a"), id("gone")]),
            revision: 7,
        };
        let snapshot = Snapshot {
            members: BTreeMap::from([
                (id("a"), member("ssl:10.0.0.1:6655", true)),
                (id("b"), member("tcp:b:1", true)),
                (id("new"), member("tcp:new:1", false)),
                (id("old"), member("tcp:old:1", false)),
            ]),
            own: BTreeMap::from([(ShardId(0), own)]),
            ..Snapshot::default()
        };
        let view = View {
            snapshot,
            drained: BTreeSet::from([id("old")]),
        };
        let expected = "\
MEMBER  ADDRESS            READY    PLACE
a       ssl:10.0.0.1:6655  yes      1
b       tcp:b:1            yes      serves
gone    gone               no       2
new     tcp:new:1          no       -
old     tcp:old:1          drained  -
";
        assert_eq!(table(&view), expected);
        let document = document(&view);
        assert_eq!(document["order"][0], "b");
        assert_eq!(document["members"][2]["ready"], false);
        assert_eq!(document["members"][3]["drained"], true);
    }
}
