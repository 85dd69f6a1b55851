//! The tables alone: limits and readings.

use clock::SplitMix64;
use openflow::decode;
use openflow::message::{TableConfig, TableMod, TableProperty};

use crate::ConnectionId;
use crate::controller::fixture::up;
use crate::controller::{ControllerConfig, ControllerOutput};
use crate::fair_table::Shares;
use crate::requests::Requests;
use crate::session::SwitchUp;

use super::*;

const SWITCH: DatapathId = DatapathId(1);

struct Setup {
    config: ControllerConfig,
    tables: Tables,
    net: Network,
    hosts: Hosts,
    outbox: Outbox,
}

impl Setup {
    fn new() -> Setup {
        let config = ControllerConfig::default();
        let shares = Shares {
            count_max: 16,
            per_switch_max: 16,
            per_port_max: 16,
        };
        Setup {
            tables: Tables::new(&config.timeouts, 7),
            net: Network::new(&config),
            hosts: Hosts::new(crate::vlan::VlanId::NONE, shares, 1, 1),
            outbox: Outbox::new(&config, 1, SplitMix64::new(1)),
            config,
        }
    }

    fn parts(&mut self) -> (&mut Tables, Around<'_>) {
        let around = Around {
            net: &self.net,
            timeouts: &self.config.timeouts,
            hosts: &self.hosts,
            outbox: &mut self.outbox,
        };
        (&mut self.tables, around)
    }

    fn connect(&mut self, version: Version) {
        let up = SwitchUp {
            version,
            ..up(SWITCH.0)
        };
        let connection = ConnectionId(1);
        let limits = self.config.requests;
        let requests = || Requests::new(limits, 1);
        self.outbox.open(SWITCH, (connection, up.version), requests);
        self.net.handle_up(Instant::START, connection, &up);
        self.tables.handle_up(SWITCH);
    }

    /// The messages sent since the last time.
    fn sent(&mut self) -> Vec<Message> {
        let outputs = std::iter::from_fn(|| self.outbox.pop());
        let messages = outputs.filter_map(|output| match output {
            ControllerOutput::Send { frame, .. } => decode(&frame).ok(),
            _ => None,
        });
        messages.collect()
    }

    /// The requests sent since the last time.
    fn asked(&mut self) -> Vec<RequestBody> {
        let asked = self.sent().into_iter().filter_map(|message| match message {
            Message::MultipartRequest(request) => Some(request.body),
            _ => None,
        });
        asked.collect()
    }
}

/// A database may name the limit before its switch connects. The table is read as soon as the
/// switch's entries have been compared, and not twice at a time.
#[test]
fn a_table_with_a_limit_is_read_one_reading_at_a_time() {
    let mut setup = Setup::new();
    let (tables, mut around) = setup.parts();
    tables.set_limit(&mut around, Instant::START, (SWITCH, Some(1000)), 8);
    setup.connect(Version::V13);
    let (tables, mut around) = setup.parts();
    tables.start(&mut around, Instant::START, SWITCH);
    let due = Instant::START + POLL_MIN;
    assert_eq!(
        setup.outbox.poll_timeout(),
        Some((due, Timer::Poll(SWITCH)))
    );
    // The switch is also asked for its own limit.
    assert_eq!(setup.asked(), [RequestBody::TableFeatures(Vec::new())]);
    let limit = setup
        .tables
        .get(SWITCH)
        .and_then(|table| table.view().limit);
    assert_eq!(limit, Some(1000));

    let (tables, mut around) = setup.parts();
    assert!(!tables.poll_due(&mut around, due, SWITCH));
    assert_eq!(setup.asked(), [RequestBody::Table]);
    let (tables, mut around) = setup.parts();
    tables.poll_at(around.outbox, due, SWITCH, due);
    assert!(!tables.poll_due(&mut around, due, SWITCH));
    assert_eq!(setup.asked(), []);
}

#[test]
fn a_switch_that_is_gone_leaves_no_table() {
    let mut setup = Setup::new();
    setup.connect(Version::V13);
    assert!(setup.tables.get(SWITCH).is_some());
    setup.tables.forget(SWITCH);
    assert!(setup.tables.get(SWITCH).is_none());
    let (tables, mut around) = setup.parts();
    assert!(!tables.poll_due(&mut around, Instant::START, SWITCH));
    assert_eq!(setup.asked(), []);
}

/// A switch of 1.4 watches its own table, and others' settings of the table are kept. The table is
/// read every half minute until the switch reports that room is getting short.
#[test]
fn a_table_that_its_switch_watches_is_read_less() {
    let mut setup = Setup::new();
    let (tables, mut around) = setup.parts();
    tables.set_limit(&mut around, Instant::START, (SWITCH, Some(1000)), 8);
    setup.connect(Version::V14);
    let (tables, mut around) = setup.parts();
    tables.start(&mut around, Instant::START, SWITCH);
    let sent = setup.sent();
    assert!(matches!(
        &sent[..],
        [
            Message::MultipartRequest(_),
            Message::SetAsync(_),
            Message::MultipartRequest(MultipartRequest {
                body: RequestBody::TableDesc,
                ..
            })
        ]
    ));
    let desc = |config: u32, properties| TableMod {
        table_id: TableId(0),
        config,
        properties,
    };
    let marks = |now| TableProperty::Vacancy {
        down: 30,
        up: 40,
        now,
    };
    let evicts = TableConfig::EVICTION.0;
    let both = evicts | TableConfig::VACANCY_EVENTS.0;
    let (tables, mut around) = setup.parts();
    let before = Some(desc(evicts, Vec::new()));
    tables.handle_desc(&mut around, Instant::START, SWITCH, before);
    let wanted = [desc(evicts, Vec::new()), desc(both, vec![marks(0)])];
    assert_eq!(setup.sent()[..2], wanted.map(Message::TableMod));
    let (tables, mut around) = setup.parts();
    let after = desc(both, vec![marks(100)]);
    tables.handle_desc(&mut around, Instant::START, SWITCH, Some(after));

    let read = |setup: &mut Setup, now, active_count| {
        let (tables, mut around) = setup.parts();
        assert!(!tables.poll_due(&mut around, now, SWITCH));
        let row = TableStats {
            table_id: TableId(0),
            active_count,
            lookup_count: 0,
            matched_count: 0,
            v10: None,
        };
        tables.handle_occupancy(&mut around, now, SWITCH, Some(row));
        tables.next_poll(&mut around, now, SWITCH);
        let table = setup.tables.get(SWITCH);
        table.and_then(|table| table.poll_due)
    };
    let mut now = Instant::START + POLL_MIN;
    assert_eq!(read(&mut setup, now, 10), Some(now + POLL_WATCHED));
    // The number of entries set in such a long time is not a rate at which the table fills.
    now += POLL_WATCHED;
    assert_eq!(read(&mut setup, now, 600), Some(now + POLL_WATCHED));
    let idle = setup
        .tables
        .get_mut(SWITCH)
        .and_then(|table| table.keeper.as_mut())
        .map(|keeper| keeper.budget().new_flows_per_s(now));
    assert_eq!(idle, Some(0.0));
    // From seven tenths on, the table is read like any other.
    now += POLL_WATCHED;
    let due = read(&mut setup, now, 701).unwrap();
    assert!(due <= now + POLL_MAX);
}
