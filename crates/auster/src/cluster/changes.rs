//! `auster cluster move` and `drain`: an operator writes a request in etcd, and the members carry
//! it out. So a member that no other member hears gets no switches, whatever etcd says about it.

use std::path::PathBuf;
use std::time::Duration;

use cli::failure::Failure;
use control::cluster::MemberId;
use etcd::Client;
use tokio::time::{Instant, sleep};

use cluster::operator::{Asked, SHARD, View, set_drained};

pub const MOVE_EXAMPLE: &str = "\
Example:
  auster cluster move b --config a.toml
  b serves all switches

The member that serves hands over once it hears b; after five seconds the request is taken back. A
switch that has not reached b keeps its master for ten seconds.";

pub const DRAIN_EXAMPLE: &str = "\
Example:
  auster cluster drain b --config a.toml
  b is drained: c serves all switches
  auster cluster drain b --undo --config a.toml
  b may serve switches again

If b serves, it hands over first. It gets nothing until that is undone, also when it is started
again, and when no other member is left.";

#[derive(clap::Args)]
pub struct MoveArgs {
    /// The member to serve all switches
    #[arg(value_name = "NAME", value_parser = name)]
    pub member: MemberId,

    /// The configuration of a member
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(clap::Args)]
pub struct DrainArgs {
    /// The member to drain
    #[arg(value_name = "NAME", value_parser = name)]
    pub member: MemberId,

    /// Let the member serve switches again
    #[arg(long)]
    pub undo: bool,

    /// The configuration of a member
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

fn name(text: &str) -> Result<MemberId, String> {
    MemberId::new(text).ok_or_else(|| "1 to 63 of a-z, 0-9 and -".to_owned())
}

/// The time for the members to carry out a request, and the request's lifetime if this process
/// ends.
const CARRIED_OUT_MAX: Duration = Duration::from_secs(5);
const REQUEST_S: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub async fn move_to(etcd: &Client, name: &MemberId) -> Result<String, Failure> {
    let give_up = Instant::now() + CARRIED_OUT_MAX;
    let mut asked: Option<Asked> = None;
    let moved = loop {
        let view = View::read(etcd).await?;
        if view.order().first() == Some(name) {
            let already = if asked.is_none() { " already" } else { "" };
            break Ok(format!("{name} serves all switches{already}"));
        }
        let revision = match may_serve(&view, name) {
            Ok(revision) => revision,
            Err(problem) => break Err(problem),
        };
        if Instant::now() >= give_up {
            break Err(Failure::negative(format!(
                "the member that serves does not hand over to {name} within {} s: does it hear \
                 {name}? See auster_cluster_member_heard in its /metrics",
                CARRIED_OUT_MAX.as_secs()
            )));
        }
        // The order has changed meanwhile, and the request does not apply to the new one.
        if asked
            .as_ref()
            .is_none_or(|asked| asked.revision != revision)
        {
            if let Some(old) = asked.take() {
                old.end(etcd).await;
            }
            asked = Some(Asked::write(etcd, name, revision, REQUEST_S).await?);
        }
        sleep(LOOK_AGAIN).await;
    };
    if let Some(asked) = asked {
        asked.end(etcd).await;
    }
    moved
}

/// The revision of the order to replace, if the member may be the next to serve.
fn may_serve(view: &View, name: &MemberId) -> Result<u64, Failure> {
    is_member(view, name)?;
    if view.drained.contains(name) {
        return Err(Failure::negative(format!(
            "{name} is drained: undo that first, by auster cluster drain {name} --undo"
        )));
    }
    if !view.is_ready(name) {
        return Err(Failure::negative(format!(
            "{name} is not ready: it does not run, reaches no switch, or hears too few of the \
             other members"
        )));
    }
    let own = view.snapshot.own.get(&SHARD);
    own.map(|own| own.revision)
        .ok_or_else(|| Failure::negative("no member serves the switches yet: ask again"))
}

fn is_member(view: &View, name: &MemberId) -> Result<(), Failure> {
    let names = view.names();
    if names.contains(name) || view.drained.contains(name) {
        return Ok(());
    }
    let names: Vec<&str> = names.into_iter().map(MemberId::as_str).collect();
    let there = match names.is_empty() {
        true => "the cluster has no member".to_owned(),
        false => format!("the members are {}", names.join(", ")),
    };
    Err(Failure::usage(format!(
        "no member is named {name}: {there}"
    )))
}

pub async fn drain(etcd: &Client, name: &MemberId) -> Result<String, Failure> {
    let view = View::read(etcd).await?;
    is_member(&view, name)?;
    let was_drained = view.drained.contains(name);
    let others = |view: &View| {
        let others = view.names().into_iter();
        others
            .filter(|other| *other != name && view.is_ready(other))
            .count()
    };
    if view.order().first() == Some(name) && others(&view) == 0 {
        return Err(Failure::negative(format!(
            "{name} serves all switches, and no other member is ready to: start one first"
        )));
    }
    if !was_drained {
        set_drained(etcd, name, true).await?;
    }
    let give_up = Instant::now() + CARRIED_OUT_MAX;
    let mut is_first = true;
    loop {
        let view = View::read(etcd).await?;
        if !view.is_ready(name) && !view.order().contains(name) {
            let already = if was_drained && is_first {
                " already"
            } else {
                ""
            };
            let serves = view.order().first().map_or("nobody", MemberId::as_str);
            return Ok(format!(
                "{name} is drained{already}: {serves} serves all switches"
            ));
        }
        if Instant::now() >= give_up {
            return Err(Failure::negative(format!(
                "{name} is drained, but it is still in the order of members after {} s: see auster \
                 cluster status",
                CARRIED_OUT_MAX.as_secs()
            )));
        }
        is_first = false;
        sleep(LOOK_AGAIN).await;
    }
}

pub async fn undo_drain(etcd: &Client, name: &MemberId) -> Result<String, Failure> {
    let view = View::read(etcd).await?;
    is_member(&view, name)?;
    if !view.drained.contains(name) {
        return Ok(format!("{name} is not drained"));
    }
    set_drained(etcd, name, false).await?;
    Ok(format!("{name} may serve switches again"))
}
