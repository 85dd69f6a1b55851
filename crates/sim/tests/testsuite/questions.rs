//! Statistics that somebody asks of a switch through the controller.

use clock::Duration;
use control::controller::questions::{Answered, KEPT, NotAsked, QUESTIONS_MAX, QuestionId};
use openflow::multipart::{FlowStatsRequest, ReplyBody, RequestBody};
use openflow::{DatapathId, MeterId, Version};
use sim::network::{Network, NetworkConfig, SwitchId};

const DPID: DatapathId = DatapathId(7);

fn one_switch(version: Version) -> (Network, SwitchId) {
    let config = NetworkConfig {
        version,
        ..NetworkConfig::default()
    };
    let mut network = Network::new(config, 1);
    let at = network.add_switch_as(DPID);
    network.run_for(Duration::from_secs(2));
    (network, at)
}

fn ask(network: &mut Network, body: RequestBody) -> Result<QuestionId, NotAsked> {
    network.ask(|controller, now| controller.ask_switch(now, DPID, body))
}

fn reply(network: &mut Network, id: QuestionId) -> Option<Answered> {
    network.ask(|controller, _| controller.take_reply(id))
}

fn flows() -> RequestBody {
    RequestBody::Flow(FlowStatsRequest::all())
}

#[test]
fn a_switch_answers_what_it_is_asked_and_once() {
    for version in [Version::V13, Version::V10] {
        let (mut network, at) = one_switch(version);
        let id = ask(&mut network, flows()).expect("it is asked");
        assert_eq!(reply(&mut network, id), None, "not yet");
        network.run_for(Duration::from_secs(1));
        let Some(Answered::Whole(bodies)) = reply(&mut network, id) else {
            panic!("{version:?}: it has answered");
        };
        let rows: usize = bodies
            .iter()
            .map(|body| match body {
                ReplyBody::Flow(rows) => rows.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(rows, network.switch(at).entries().count());
        assert!(rows > 0, "it has its infrastructure");
        assert_eq!(reply(&mut network, id), Some(Answered::Lost), "taken");
    }
}

#[test]
fn what_cannot_be_asked_is_not() {
    let (mut network, _) = one_switch(Version::V10);
    let meters = ask(&mut network, RequestBody::Meter(MeterId::ALL));
    assert_eq!(meters, Err(NotAsked::NotInVersion));
    let other = network.ask(|controller, now| controller.ask_switch(now, DatapathId(8), flows()));
    assert_eq!(other, Err(NotAsked::NoSwitch));
}

/// The answer takes longer than the controller waits for it.
#[test]
fn a_question_is_lost_after_its_time_and_no_more_than_so_many_are_open() {
    let mut config = NetworkConfig::default();
    config.process.controller.requests.timeout = config.control_delay / 2;
    let mut network = Network::new(config, 1);
    network.add_switch_as(DPID);
    network.run_for(Duration::from_secs(2));
    let first = ask(&mut network, flows()).expect("it is asked");
    for _ in 1..QUESTIONS_MAX {
        ask(&mut network, flows()).expect("there is room");
    }
    assert_eq!(ask(&mut network, flows()), Err(NotAsked::TooMany));
    network.run_for(Duration::from_secs(1));
    assert_eq!(reply(&mut network, first), Some(Answered::Lost));
    ask(&mut network, flows()).expect("it was taken");
    assert_eq!(ask(&mut network, flows()), Err(NotAsked::TooMany));
    network.run_for(KEPT);
    ask(&mut network, flows()).expect("nobody has asked for the others");
}

#[test]
fn a_connection_that_goes_loses_its_questions() {
    let (mut network, at) = one_switch(Version::V13);
    network.set_mute(at);
    let id = ask(&mut network, flows()).expect("it is asked");
    network.disconnect(at);
    network.run_for(Duration::from_millis(100));
    assert_eq!(reply(&mut network, id), Some(Answered::Lost));
}
