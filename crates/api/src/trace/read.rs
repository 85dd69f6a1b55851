//! Reads a switch on a packet's path: its entries, groups and ports, and later the counters of the
//! entries that the packet meets.

use control::controller::trace::{EntryOwner, GuestPart, Known, Start};
use control::flows::parts::PartKind;
use control::trace::Around;
use openflow::message::{Port, PortConfig};
use openflow::multipart::{FlowStats, FlowStatsRequest, GroupDesc, ReplyBody, RequestBody};
use openflow::table::explain::{Report, Step};
use openflow::table::{FlowEntry, plain_port};
use openflow::{Cookie, DatapathId, Field, GroupId, MacAddr, Match, PortNo, Version};
use tokio::task::spawn_blocking;

use super::super::Api;
use super::super::problem::Problem;

/// The most entries that are read as a whole. A larger switch is asked only for entries that the
/// packet can meet.
const WHOLE_MAX: u64 = 20_000;
/// The kinds of auster's entries that may match without the Ethernet address of a host.
const KINDS: [u64; 8] = [1, 10, 11, 12, 13, 14, 16, 17];
const KIND_MASK: Cookie = Cookie(0xffff_ffff_0000_ff00);

/// A switch as it was read.
pub struct Read {
    pub known: Known,
    pub entry_count: u64,
    /// Whether entries were left out that should not matter.
    pub is_partial: bool,
}

/// The count of an entry.
pub type Count = (u64, u64);

impl Api {
    pub async fn trace_known(&self, dpid: DatapathId) -> Result<Option<Known>, Problem> {
        self.ask_soon(move |controller| controller.trace_switch(dpid))
            .await
    }

    /// Reads a switch.
    ///
    /// # Errors
    /// The reason why the switch cannot be read.
    pub async fn read_switch(
        &self,
        dpid: DatapathId,
        start: &Start,
    ) -> Result<(Around, Read), String> {
        let known = self
            .trace_known(dpid)
            .await
            .map_err(|problem| problem.detail)?;
        let known = known.ok_or_else(|| format!("switch {dpid} is not known"))?;
        if !known.is_connected {
            return Err(format!("switch {dpid} is not connected"));
        }
        let ask = async |body| {
            let answer = self.ask_switch(dpid, body).await;
            answer.map_err(|problem| problem.detail)
        };
        let all = FlowStatsRequest::all();
        let aggregate = ask(RequestBody::Aggregate(all.clone())).await?;
        let entry_count = entry_count(&aggregate);
        let is_partial = entry_count > WHOLE_MAX;
        let requests = match is_partial {
            false => vec![all],
            true => narrow(&start.macs),
        };
        let mut rows: Vec<FlowStats> = Vec::new();
        for request in requests {
            for body in ask(RequestBody::Flow(request)).await? {
                if let ReplyBody::Flow(more) = body {
                    rows.extend(more);
                }
            }
        }
        let (mut groups, mut ports) = (Vec::<GroupDesc>::new(), Vec::<Port>::new());
        if known.version == Version::V10 {
            ports = known
                .ports
                .iter()
                .map(|(port, is_up)| {
                    let mut described = plain_port(*port);
                    if !is_up {
                        described.config = PortConfig::PORT_DOWN;
                    }
                    described
                })
                .collect();
        } else {
            for body in [
                RequestBody::GroupDesc(GroupId::ALL),
                RequestBody::PortDesc(PortNo::ANY),
            ] {
                for body in ask(body).await? {
                    match body {
                        ReplyBody::GroupDesc(more) => groups.extend(more),
                        ReplyBody::PortDesc(more) => ports.extend(more),
                        _ => {}
                    }
                }
            }
        }
        let version = known.version;
        let report = spawn_blocking(move || {
            if is_partial {
                deduplicate(&mut rows);
            }
            Report::new(version, rows, groups, ports)
        });
        let report = report.await.map_err(|_| Problem::busy().detail)?;
        let links = known.links.clone();
        let read = Read {
            entry_count,
            is_partial,
            known,
        };
        Ok((Around { report, links }, read))
    }

    /// The owners of these entries of a switch.
    pub async fn owners(
        &self,
        dpid: DatapathId,
        rows: Vec<FlowStats>,
    ) -> Result<Vec<EntryOwner>, Problem> {
        self.ask_soon(move |controller| {
            let owner = |row| controller.trace_owner(dpid, row);
            rows.iter().map(owner).collect()
        })
        .await
    }

    /// The guests of these groups and meters of a switch.
    pub async fn guests_of(
        &self,
        dpid: DatapathId,
        parts: Vec<(PartKind, u32)>,
    ) -> Result<Vec<Option<GuestPart>>, Problem> {
        self.ask_soon(move |controller| {
            let guest = |(kind, id): &(PartKind, u32)| controller.trace_part(dpid, *kind, *id);
            parts.iter().map(guest).collect()
        })
        .await
    }

    /// Reads the count of an entry again; `None` if the entry no longer exists, or the switch does
    /// not answer.
    pub async fn count(&self, dpid: DatapathId, entry: &FlowEntry) -> Option<Count> {
        let request = FlowStatsRequest {
            table_id: entry.table_id,
            cookie: entry.cookie,
            cookie_mask: Cookie(u64::MAX),
            r#match: entry.r#match.clone(),
            ..FlowStatsRequest::all()
        };
        let bodies = self
            .ask_switch(dpid, RequestBody::Flow(request))
            .await
            .ok()?;
        let rows = bodies.into_iter().flat_map(|body| match body {
            ReplyBody::Flow(rows) => rows,
            _ => Vec::new(),
        });
        let is_it = |row: &FlowStats| {
            let key = (row.table_id, row.priority, &row.r#match);
            key == (entry.table_id, entry.priority, &entry.r#match)
        };
        let row = rows.into_iter().find(is_it)?;
        Some((row.packet_count, row.byte_count))
    }
}

/// Returns the number of entries over all parts of an answer. There should be one part.
fn entry_count(aggregate: &[ReplyBody]) -> u64 {
    let counts = aggregate.iter().map(|body| match body {
        ReplyBody::Aggregate(counts) => u64::from(counts.flow_count),
        _ => 0,
    });
    counts.fold(0, u64::saturating_add)
}

/// Removes duplicates of entries that several requests have found.
fn deduplicate(rows: &mut Vec<FlowStats>) {
    let key = |row: &FlowStats| (row.table_id, row.priority, row.r#match.to_string());
    rows.sort_by_cached_key(key);
    rows.dedup_by(|a, b| {
        (a.table_id, a.priority, &a.r#match) == (b.table_id, b.priority, &b.r#match)
    });
}

/// Makes requests for the entries that packets between these addresses can meet: entries that name
/// one of them, and auster's entries that name no host.
fn narrow(macs: &[MacAddr]) -> Vec<FlowStatsRequest> {
    let of_host = macs.iter().flat_map(|mac| {
        [Field::EthDst, Field::EthSrc].map(|field| FlowStatsRequest {
            r#match: Match::any().with(field, mac.to_u64()),
            ..FlowStatsRequest::all()
        })
    });
    let of_kind = KINDS.iter().map(|kind| FlowStatsRequest {
        cookie: Cookie(control::entry::COOKIE_PREFIX.0 | kind << 8),
        cookie_mask: KIND_MASK,
        ..FlowStatsRequest::all()
    });
    of_host.chain(of_kind).collect()
}

/// The entries among steps, by their places.
pub fn entries(steps: &[Step]) -> impl Iterator<Item = (usize, &FlowEntry)> {
    steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| match step {
            Step::Entry { entry, .. } => Some((at, &**entry)),
            _ => None,
        })
}

/// The groups and meters among steps, by their places.
pub fn parts(steps: &[Step]) -> impl Iterator<Item = (usize, (PartKind, u32))> {
    steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| match step {
            Step::Group { group, .. } => Some((at, (PartKind::Group, group.0))),
            Step::Meter(meter) => Some((at, (PartKind::Meter, meter.0))),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use openflow::multipart::AggregateStats;

    use super::*;

    #[test]
    fn counts_of_several_parts_do_not_overflow() {
        let part = ReplyBody::Aggregate(AggregateStats {
            packet_count: 0,
            byte_count: 0,
            flow_count: u32::MAX,
            stats: Vec::new(),
        });
        let parts = [part.clone(), part];
        assert_eq!(entry_count(&parts), 2 * u64::from(u32::MAX));
    }
}
