//! `auster cluster`: the members of a cluster as etcd has them, and an operator's requests to them.

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

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::health;
use cluster::operator::View;
use config::Settings;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the members, the one that serves the switches, and its successors
    #[command(after_help = STATUS_EXAMPLE)]
    Status(StatusArgs),
    /// Make a member serve all switches
    #[command(after_help = changes::MOVE_EXAMPLE)]
    Move(changes::MoveArgs),
    /// Make a member serve nothing, until undone
    #[command(after_help = changes::DRAIN_EXAMPLE)]
    Drain(changes::DrainArgs),
}

const STATUS_EXAMPLE: &str = "\
Example:
  auster cluster status --config a.toml
  MEMBER  ADDRESS            READY  PLACE   HEARD BY
  a       ssl:10.0.0.1:6655  yes    serves  b, c
  b       ssl:10.0.0.2:6655  yes    1       a, c
  c       ssl:10.0.0.3:6655  no     -       a, b

A member is ready when it reaches a switch and hears enough of the others, unless it is drained. The
place is that in the order of take-overs, from 1. One that was killed has its entry for ten seconds;
nobody hears it after three. While etcd is away the table is what the member of this configuration
knows, if it has status; ovs-vsctl --columns=target,role list controller shows whom switches obey.";

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
/// For the status: the same time, the time for all answers of etcd, and the time for a member.
const STATUS_MAX: Duration = Duration::from_secs(1);
const STATUS_WHOLE_MAX: Duration = Duration::from_secs(2);
const OWN_VIEW_MAX: Duration = Duration::from_secs(1);

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Status(args) => status(&args),
        Command::Move(args) => {
            let settings = Settings::read(&args.config)?;
            let done = with_etcd(&settings, &args.config, ETCD_MAX, async |etcd| {
                changes::move_to(&etcd, &args.member).await
            })?;
            say!("{done}");
            Ok(())
        }
        Command::Drain(args) => {
            let settings = Settings::read(&args.config)?;
            let done = with_etcd(&settings, &args.config, ETCD_MAX, async |etcd| {
                match args.undo {
                    true => changes::undo_drain(&etcd, &args.member).await,
                    false => changes::drain(&etcd, &args.member).await,
                }
            })?;
            say!("{done}");
            Ok(())
        }
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let settings = Settings::read(&args.config)?;
    let path = settings.status.as_deref();
    let looked = with_etcd(&settings, &args.config, STATUS_MAX, async |etcd| {
        look(&etcd, path).await
    });
    let (view, problem) = looked?;
    if args.json {
        let mut document = document(&view);
        document["problem"] = json!(problem);
        say!("{document}");
        return Ok(());
    }
    if let Some(problem) = problem {
        say!("{problem}\nThis is what the member of this configuration knows:");
    }
    say!("{}", table(&view).trim_end());
    Ok(())
}

/// The cluster as etcd has it, or else as a member knows it, with the problem of etcd.
async fn look(
    etcd: &etcd::Client,
    status: Option<&Path>,
) -> Result<(View, Option<String>), Failure> {
    let problem = match timeout(STATUS_WHOLE_MAX, of_etcd(etcd)).await {
        Ok(Ok(view)) => return Ok((view, None)),
        Ok(Err(problem)) => problem,
        Err(_) => format!("etcd: no answer within {} s", STATUS_WHOLE_MAX.as_secs()),
    };
    let own = match status {
        Some(path) => timeout(OWN_VIEW_MAX, health::status(path)).await.ok(),
        None => None,
    };
    match own
        .and_then(Result::ok)
        .and_then(|own| View::of_status(&own))
    {
        Some(view) => Ok((view, Some(problem))),
        None => Err(Failure::network(problem)),
    }
}

/// Asks all members of etcd at once whether they answer: in turn, each might have to be waited for.
async fn of_etcd(etcd: &etcd::Client) -> Result<View, String> {
    let mut asked = JoinSet::new();
    for member in 0..etcd.member_count() {
        let etcd = etcd.clone();
        asked.spawn(async move { etcd.status(member).await });
    }
    let mut problems = Vec::new();
    for answer in asked.join_all().await {
        match answer {
            Ok(_) => {
                let read = View::read(etcd).await;
                return read.map_err(|failure| failure.message().to_owned());
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    problems.sort();
    Err(format!("etcd: {}", problems.join("; ")))
}

/// Runs something with a client of the etcd that a member's configuration names.
fn with_etcd<T, F>(
    settings: &Settings,
    config: &Path,
    deadline: Duration,
    ask: impl FnOnce(etcd::Client) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let Some(stated) = &settings.cluster else {
        let file = config.display();
        return Err(Failure::usage(format!(
            "{file}: no [cluster]: give the configuration of a member"
        )));
    };
    let security = stated.security(settings.credential_files())?;
    block_on(async { ask(stated.client(&security, deadline)?).await })
}

fn table(view: &View) -> String {
    let mut rows = vec![["MEMBER", "ADDRESS", "READY", "PLACE", "HEARD BY"].map(str::to_owned)];
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
            match view.heard_by(name) {
                Some(by) if by.is_empty() => "nobody".to_owned(),
                Some(by) => by.join(", "),
                None => "-".to_owned(),
            },
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [a, b, c, d] = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for [name, address, ready, place, by] in &rows {
        let _ = writeln!(
            text,
            "{name:a$}  {address:b$}  {ready:c$}  {place:d$}  {by}"
        );
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
            "heard_by": view.heard_by(name),
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
            hears: BTreeMap::from([
                (id("a"), BTreeSet::from([id("b"), id("new")])),
                (id("new"), BTreeSet::from([id("b")])),
            ]),
        };
        let expected = "\
MEMBER  ADDRESS            READY    PLACE   HEARD BY
a       ssl:10.0.0.1:6655  yes      1       nobody
b       tcp:b:1            yes      serves  a, new
gone    gone               no       2       nobody
new     tcp:new:1          no       -       a
old     tcp:old:1          drained  -       nobody
";
        assert_eq!(table(&view), expected);
        let document = document(&view);
        assert_eq!(document["order"][0], "b");
        assert_eq!(document["members"][2]["ready"], false);
        assert_eq!(document["members"][3]["drained"], true);
        assert_eq!(document["members"][1]["heard_by"], json!(["a", "new"]));
    }

    /// Without etcd the place in use is the first.
    #[test]
    fn a_member_says_what_it_knows() {
        let member = |name, hears: &[&str]| {
            let address = "tcp:x:1";
            json!({"name": name, "address": address, "ready": true, "hears": hears})
        };
        let members = [member("a", &["b"]), member("b", &["a"]), member("c", &[])];
        let known = json!({"members": members, "order": ["b", "a", "c", "b"]});
        let view = View::of_status(&json!({"cluster": {"known": known}})).unwrap();
        let expected = "\
MEMBER  ADDRESS  READY  PLACE   HEARD BY
a       tcp:x:1  yes    1       b
b       tcp:x:1  yes    serves  a
c       tcp:x:1  yes    2       nobody
";
        assert_eq!(table(&view), expected);
        for wrong in [json!({}), json!({"cluster": {"known": {"members": [{}]}}})] {
            assert!(View::of_status(&wrong).is_none(), "{wrong}");
        }
    }
}
