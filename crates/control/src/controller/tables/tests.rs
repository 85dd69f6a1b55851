//! The tables alone: limits and readings.

use clock::SplitMix64;
use openflow::decode;

use crate::ConnectionId;
use crate::controller::fixture::up;
use crate::controller::{ControllerConfig, ControllerOutput};
use crate::fair_table::Shares;
use crate::requests::Requests;

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
            tables: Tables::new(&config.timeouts),
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

    fn connect(&mut self) {
        let (up, connection) = (up(SWITCH.0), ConnectionId(1));
        let limits = self.config.requests;
        let requests = || Requests::new(limits, 1);
        self.outbox.open(SWITCH, (connection, up.version), requests);
        self.net.handle_up(Instant::START, connection, &up);
        self.tables.handle_up(SWITCH);
    }

    /// The requests sent since the last time.
    fn asked(&mut self) -> Vec<RequestBody> {
        let outputs = std::iter::from_fn(|| self.outbox.pop());
        let messages = outputs.filter_map(|output| match output {
            ControllerOutput::Send { frame, .. } => decode(&frame).ok(),
            _ => None,
        });
        let asked = messages.filter_map(|message| match message {
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
    setup.connect();
    let (tables, mut around) = setup.parts();
    tables.start(&mut around, Instant::START, SWITCH);
    let due = Instant::START + POLL_MIN;
    assert_eq!(
        setup.outbox.poll_timeout(),
        Some((due, Timer::Poll(SWITCH)))
    );
    // The switch is asked for its own limit as well.
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
    setup.connect();
    assert!(setup.tables.get(SWITCH).is_some());
    setup.tables.forget(SWITCH);
    assert!(setup.tables.get(SWITCH).is_none());
    let (tables, mut around) = setup.parts();
    assert!(!tables.poll_due(&mut around, Instant::START, SWITCH));
    assert_eq!(setup.asked(), []);
}
