//! Static entries alone: what a switch answers when more than one change is under way.

use clock::SplitMix64;
use openflow::text::{parse_actions, parse_match};

use crate::ConnectionId;
use crate::controller::ControllerConfig;
use crate::controller::fixture::up;
use crate::requests::Requests;

use super::*;

const SWITCH: DatapathId = DatapathId(1);

struct Setup {
    stated: StaticEntries,
    outbox: Outbox,
}

fn name(name: &str) -> FlowName {
    FlowName {
        owner: "ann".to_owned(),
        name: name.to_owned(),
    }
}

fn entry(matching: &str, actions: &str, hard_timeout_s: u16) -> StaticEntry {
    StaticEntry {
        dpid: SWITCH,
        r#match: parse_match(matching).expect("a match"),
        actions: parse_actions(actions).expect("actions"),
        hard_timeout_s,
        ..StaticEntry::default()
    }
}

impl Setup {
    /// A switch that has been compared.
    fn new() -> Setup {
        let config = ControllerConfig::default();
        let mut setup = Setup {
            stated: StaticEntries::default(),
            outbox: Outbox::new(&config, 1, SplitMix64::new(1)),
        };
        let requests = || Requests::new(config.requests, 1);
        let channel = (ConnectionId(1), up(1).version);
        setup.outbox.open(SWITCH, channel, requests);
        let (stated, outbox) = (&mut setup.stated, &mut setup.outbox);
        stated.reconcile(SWITCH, false, &mut Vec::new(), outbox);
        setup
    }

    fn put(&mut self, of: &str, entry: &StaticEntry) {
        let edit = FlowEdit::Put(name(of), Box::new(entry.clone()));
        self.stated.edit(vec![edit], &mut self.outbox);
    }

    fn sleep(&mut self, s: u64) {
        self.outbox.now = self.outbox.now + Duration::from_secs(s);
    }

    /// The owner may change nothing for now.
    fn exhaust(&mut self) {
        let now = self.outbox.now;
        let mut budget = Budget::new(now, CHANGES_PER_S, 1);
        assert!(budget.take(now));
        self.stated.owner("ann", now).budget = budget;
    }

    /// The xid of the entry that was sent last.
    fn xid(&self, entry: &StaticEntry) -> Xid {
        let held = self.stated.switches[&SWITCH].places[&entry.key()]
            .held
            .as_ref();
        held.and_then(|held| held.xid).expect("it was sent")
    }

    fn refuse(&mut self, xid: Xid) {
        let error = ErrorKind::FLOW_MOD_TABLE_FULL;
        self.stated.handle_refused(SWITCH, xid, error);
    }

    fn state(&self, of: &str) -> Option<FlowState> {
        let entry = self.stated.wanted.get(&name(of))?;
        Some(self.stated.view(&name(of), entry).state)
    }

    fn is_refused(&self, of: &str) -> bool {
        matches!(self.state(of), Some(FlowState::Refused(_)))
    }
}

#[test]
fn an_entry_is_not_refused_for_an_earlier_one_of_its_place() {
    let mut setup = Setup::new();
    let (bad, good) = (entry("ip", "output:1", 0), entry("ip", "output:2", 0));
    // A barrier is under way while both are sent.
    setup.put("other", &entry("arp", "drop", 0));
    setup.put("one", &bad);
    let first = setup.xid(&bad);
    setup.put("one", &good);
    setup.stated.handle_confirmed(SWITCH, &mut setup.outbox);
    setup.refuse(first);
    assert_eq!(setup.state("one"), Some(FlowState::Sent));
    setup.stated.handle_confirmed(SWITCH, &mut setup.outbox);
    assert_eq!(setup.state("one"), Some(FlowState::InUse));
    // Its own refusal counts.
    setup.put("one", &bad);
    setup.refuse(setup.xid(&bad));
    assert!(setup.is_refused("one"));
}

#[test]
fn an_entry_that_waits_is_sent_though_the_one_before_it_is_refused() {
    let mut setup = Setup::new();
    let (bad, good) = (entry("ip", "output:1", 0), entry("ip", "output:2", 0));
    setup.put("one", &bad);
    let first = setup.xid(&bad);
    setup.exhaust();
    setup.put("one", &good);
    setup.refuse(first);
    assert!(!setup.is_refused("one"));
    setup.sleep(1);
    setup.stated.advance(&mut setup.outbox);
    assert_ne!(setup.xid(&good), first);
}
