//! `auster cluster`: the members of a cluster, as etcd has them.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use cli::failure::Failure;
use cli::output::say;
use control::cluster::{MemberId, ShardId, Snapshot};
use serde_json::{Value, json};

use crate::run::Settings;
use crate::run::cluster::snapshot;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the members, which of them serves the switches, and who takes over after it
    #[command(after_help = STATUS_EXAMPLE)]
    Status(StatusArgs),
}

const STATUS_EXAMPLE: &str = "\
Example:
  auster cluster status --config a.toml
  MEMBER  ADDRESS            READY  PLACE
  a       ssl:10.0.0.1:6655  yes    serves
  b       ssl:10.0.0.2:6655  yes    1
  c       ssl:10.0.0.3:6655  no     -

A member is ready when it reaches a switch. The place is that in the order of take-overs, from 1.
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
    let Command::Status(args) = command;
    let settings = Settings::read(&args.config)?;
    let Some(stated) = &settings.cluster else {
        let file = args.config.display();
        return Err(Failure::usage(format!(
            "{file}: no [cluster]: give the configuration of a member"
        )));
    };
    let security = stated.security(settings.credential_files())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::machine(format!("cannot start threads: {error}")))?;
    let read = runtime.block_on(async {
        let client = stated.client(&security, ETCD_MAX)?;
        snapshot(&client).await
    });
    let snapshot = read?;
    match args.json {
        true => say!("{}", document(&snapshot)),
        false => say!("{}", table(&snapshot).trim_end()),
    }
    Ok(())
}

/// The members of the order and those that have a key, by name.
fn names(snapshot: &Snapshot) -> Vec<MemberId> {
    let all = snapshot.members.keys().chain(order(snapshot));
    let mut names: Vec<MemberId> = all.cloned().collect();
    names.sort();
    names.dedup();
    names
}

/// All switches are one shard so far.
fn order(snapshot: &Snapshot) -> &[MemberId] {
    let own = snapshot.own.get(&ShardId(0));
    own.map_or(&[], |own| own.order.places())
}

fn table(snapshot: &Snapshot) -> String {
    let mut rows = vec![["MEMBER", "ADDRESS", "READY", "PLACE"].map(str::to_owned)];
    for name in names(snapshot) {
        let member = snapshot.members.get(&name);
        let is_ready = member.is_some_and(|member| member.is_ready);
        let place = order(snapshot).iter().position(|place| *place == name);
        let place = match place {
            Some(0) => "serves".to_owned(),
            Some(place) => place.to_string(),
            None => "-".to_owned(),
        };
        rows.push([
            name.to_string(),
            member.map_or("gone".to_owned(), |member| member.address.clone()),
            if is_ready { "yes" } else { "no" }.to_owned(),
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

fn document(snapshot: &Snapshot) -> Value {
    let members = snapshot.members.iter().map(|(name, member)| {
        json!({
            "name": name.as_str(),
            "address": member.address,
            "ready": member.is_ready,
        })
    });
    let order = order(snapshot).iter().map(MemberId::as_str);
    json!({
        "epoch": snapshot.epoch.map_or(0, |(epoch, _)| epoch),
        "members": members.collect::<Vec<_>>(),
        "order": order.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use control::cluster::{Member, Order, Own};

    use super::*;

    #[test]
    fn members_are_listed_by_name_with_their_places() {
        let id = |name: &str| MemberId::new(name).unwrap();
        let member = |address: &str, is_ready| Member {
            address: address.to_owned(),
            is_ready,
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
            ]),
            own: BTreeMap::from([(ShardId(0), own)]),
            ..Snapshot::default()
        };
        let expected = "\
MEMBER  ADDRESS            READY  PLACE
a       ssl:10.0.0.1:6655  yes    1
b       tcp:b:1            yes    serves
gone    gone               no     2
new     tcp:new:1          no     -
";
        assert_eq!(table(&snapshot), expected);
        let document = document(&snapshot);
        assert_eq!(document["order"][0], "b");
        assert_eq!(document["members"][2]["ready"], false);
    }
}
