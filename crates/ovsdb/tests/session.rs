//! The session under virtual time: what it sends, what it answers, and how it ends.

use std::time::Duration;

use clock::Instant;
use ovsdb::{
    Answer, CloseReason, Condition, Config, Limits, Message, MessageError, MonitorRequest,
    OpResult, Operation, Output, ReplicaError, RequestError, RequestId, Schema, Session,
    SplitError, Transaction,
};
use serde_json::{Value, json};

fn at(seconds: u64) -> Instant {
    Instant::START + Duration::from_secs(seconds)
}

fn session(config: Config) -> Session {
    Session::new(Instant::START, config)
}

fn receive(session: &mut Session, message: Value) {
    session.handle_bytes(Instant::START, message.to_string().as_bytes());
}

/// Everything that comes out, with the bytes as messages.
fn drain(session: &mut Session) -> (Vec<Message>, Vec<Output>) {
    let (mut sent, mut others) = (Vec::new(), Vec::new());
    while let Some(output) = session.poll_output() {
        match output {
            Output::Transmit(bytes) => sent.push(Message::decode(&bytes).unwrap()),
            other => others.push(other),
        }
    }
    (sent, others)
}

fn schema() -> Schema {
    let set = json!({"key": "string", "min": 0, "max": "unlimited"});
    let columns = json!({"name": {"type": "string"}, "tags": {"type": set}});
    let tables = json!({"T": {"columns": columns}});
    Schema::from_json(&json!({"name": "D", "version": "1.0.0", "tables": tables})).unwrap()
}

fn all_of_t() -> MonitorRequest {
    let columns = ["name", "tags"].map(String::from).into();
    MonitorRequest {
        columns: [("T".to_string(), columns)].into(),
        ..MonitorRequest::default()
    }
}

const UUID: &str = "00000000-0000-0000-0000-000000000001";

#[test]
fn an_echo_request_is_answered_at_once_with_its_own_id_and_params() {
    let mut session = session(Config::default());
    receive(
        &mut session,
        json!({"id": ["x"], "method": "echo", "params": [1, {}]}),
    );
    let (sent, others) = drain(&mut session);
    let result = json!([1, {}]);
    let id = json!(["x"]);
    assert_eq!(sent, [Message::Response { id, result }]);
    assert_eq!(others, []);
}

#[test]
fn a_request_we_do_not_know_is_refused_and_the_connection_stays() {
    let mut session = session(Config::default());
    receive(
        &mut session,
        json!({"id": 1, "method": "dance", "params": []}),
    );
    let (sent, others) = drain(&mut session);
    assert!(matches!(&sent[..], [Message::Error { .. }]));
    assert_eq!(others, []);
}

#[test]
fn a_silent_peer_is_probed_at_five_seconds_and_closed_at_ten() {
    let mut session = session(Config::default());
    let request = session.list_dbs(at(0)).unwrap();
    let _ = drain(&mut session);
    assert_eq!(
        session.poll_timeout(),
        Some((at(5), "OVSDB inactivity probe"))
    );
    session.handle_timeout(at(5));
    let (sent, _) = drain(&mut session);
    assert!(matches!(&sent[..], [Message::Request { method, .. }] if method == "echo"));
    assert_eq!(session.poll_timeout(), Some((at(10), "OVSDB probe answer")));
    session.handle_timeout(at(10));
    let (_, others) = drain(&mut session);
    let closed = Output::Answered(request, Answer::Closed);
    assert_eq!(others, [closed, Output::Close(CloseReason::Inactive)]);
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn any_byte_of_a_long_answer_counts_as_life() {
    let mut session = session(Config::default());
    session.handle_timeout(at(5));
    session.handle_bytes(at(9), b"{");
    assert_eq!(
        session.poll_timeout(),
        Some((at(14), "OVSDB inactivity probe"))
    );
    session.handle_timeout(at(10));
    assert!(!session.is_closed());
}

#[test]
fn an_answer_to_our_probe_is_nobodys_business() {
    let mut session = session(Config::default());
    session.handle_timeout(at(5));
    let _ = drain(&mut session);
    receive(
        &mut session,
        json!({"id": "echo", "result": [], "error": null}),
    );
    assert_eq!(drain(&mut session), (vec![], vec![]));
    assert_eq!(session.unmatched_answer_count(), 0);
}

#[test]
fn answers_find_their_requests_in_any_order() {
    let mut session = session(Config::default());
    let first = session.list_dbs(at(0)).unwrap();
    let transaction = Transaction::new("D").then(Operation::delete("T", vec![]));
    let second = session.transact(at(0), &transaction).unwrap();
    let _ = drain(&mut session);
    receive(
        &mut session,
        json!({"id": second.0, "result": [{"count": 3}], "error": null}),
    );
    receive(
        &mut session,
        json!({"id": first.0, "result": ["D"], "error": null}),
    );
    let (_, others) = drain(&mut session);
    let transacted = Answer::Transacted(Ok(vec![OpResult::Count(3)]));
    let databases = Answer::Databases(vec!["D".into()]);
    let expected = [(second, transacted), (first, databases)];
    assert_eq!(
        others,
        expected.map(|(id, answer)| Output::Answered(id, answer))
    );
}

#[test]
fn an_unanswered_request_times_out_and_its_late_answer_is_only_counted() {
    let config = Config {
        inactivity_probe: None,
        ..Config::default()
    };
    let mut session = session(config);
    let request = session.list_dbs(at(1)).unwrap();
    let _ = drain(&mut session);
    assert_eq!(
        session.poll_timeout(),
        Some((at(31), "OVSDB request time-out"))
    );
    session.handle_timeout(at(30));
    assert_eq!(drain(&mut session).1, []);
    session.handle_timeout(at(31));
    assert_eq!(
        drain(&mut session).1,
        [Output::Answered(request, Answer::TimedOut)]
    );
    assert_eq!(session.poll_timeout(), None);
    receive(
        &mut session,
        json!({"id": request.0, "result": ["D"], "error": null}),
    );
    assert_eq!(drain(&mut session), (vec![], vec![]));
    assert_eq!(session.unmatched_answer_count(), 1);
}

#[test]
fn cancel_names_the_transaction_and_its_refusal_comes_back() {
    let mut session = session(Config::default());
    let id = session.transact(at(0), &Transaction::new("D")).unwrap();
    session.cancel(at(0), id);
    session.cancel(at(0), RequestId(99));
    let (sent, _) = drain(&mut session);
    let method = "cancel".to_string();
    let params = vec![json!(id.0)];
    assert_eq!(sent[1..], [Message::Notification { method, params }]);
    receive(
        &mut session,
        json!({"id": id.0, "result": null, "error": "canceled"}),
    );
    let refused = Answer::Refused(json!("canceled"));
    assert_eq!(drain(&mut session).1, [Output::Answered(id, refused)]);
}

#[test]
fn a_cancelled_transaction_that_nobody_answers_ends_after_a_second() {
    for request_timeout in [None, Some(Duration::from_secs(30))] {
        let mut session = session(Config {
            inactivity_probe: None,
            request_timeout,
            ..Config::default()
        });
        let id = session.transact(at(0), &Transaction::new("D")).unwrap();
        session.cancel(at(2), id);
        let _ = drain(&mut session);
        assert_eq!(
            session.poll_timeout(),
            Some((at(3), "OVSDB request time-out"))
        );
        session.handle_timeout(at(3));
        assert_eq!(
            drain(&mut session).1,
            [Output::Answered(id, Answer::TimedOut)]
        );
        assert_eq!(session.poll_timeout(), None);
    }
}

#[test]
fn requests_are_refused_at_the_stated_bounds() {
    let mut few = session(Config {
        request_count_max: 2,
        ..Config::default()
    });
    few.list_dbs(at(0)).unwrap();
    few.list_dbs(at(0)).unwrap();
    let error = RequestError::TooManyRequests {
        request_count_max: 2,
    };
    assert_eq!(few.list_dbs(at(0)), Err(error));

    let mut small = session(Config {
        unsent_bytes_max: 10,
        ..Config::default()
    });
    small.list_dbs(at(0)).unwrap();
    assert_eq!(small.list_dbs(at(0)), Err(RequestError::Backlog));
    let _ = drain(&mut small);
    small.list_dbs(at(0)).unwrap();
}

#[test]
fn a_peer_that_only_makes_us_answer_is_closed() {
    let mut session = session(Config {
        unsent_bytes_max: 1000,
        ..Config::default()
    });
    let echo = json!({"id": 1, "method": "echo", "params": []}).to_string();
    session.handle_bytes(at(0), echo.repeat(100).as_bytes());
    let (sent, others) = drain(&mut session);
    assert!(sent.len() < 40, "{} answers were queued", sent.len());
    assert_eq!(others, [Output::Close(CloseReason::Backlog)]);
}

#[test]
fn malformed_input_closes_with_its_reason_and_nothing_follows() {
    let limits = Limits {
        message_bytes_max: 100,
        depth_max: 5,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    let long = format!(r#"{{"method":"{}"#, "x".repeat(200));
    for (bytes, reason) in [
        (
            "]",
            CloseReason::Split(SplitError::NotAnObject { byte: b']' }),
        ),
        ("{}", CloseReason::Message(MessageError::NoKind)),
        (
            "{[[[[[[",
            CloseReason::Split(SplitError::TooDeep { depth_max: 5 }),
        ),
        (
            &long,
            CloseReason::Split(SplitError::MessageTooLong { bytes_max: 100 }),
        ),
    ] {
        let mut session = session(config);
        session.handle_bytes(at(0), bytes.as_bytes());
        session.handle_bytes(at(0), br#"{"id":1,"method":"echo","params":[]}"#);
        assert_eq!(
            drain(&mut session),
            (vec![], vec![Output::Close(reason)]),
            "{bytes}"
        );
        assert_eq!(session.list_dbs(at(0)), Err(RequestError::Closed));
    }
}

#[test]
fn an_answer_of_the_wrong_shape_closes() {
    let mut session = session(Config::default());
    let id = session.list_dbs(at(0)).unwrap();
    let _ = drain(&mut session);
    receive(
        &mut session,
        json!({"id": id.0, "result": [1], "error": null}),
    );
    let reason = CloseReason::Answer { method: "list_dbs" };
    let closed = Output::Answered(id, Answer::Closed);
    assert_eq!(drain(&mut session).1, [closed, Output::Close(reason)]);
}

#[test]
fn a_monitor_starts_with_the_rows_there_are_and_follows_their_changes() {
    let mut session = session(Config::default());
    let mut request = all_of_t();
    request
        .conditions
        .insert("T".into(), vec![Condition::equal("name", "a")]);
    let id = session.monitor_cond(at(0), &schema(), &request).unwrap();
    let (sent, _) = drain(&mut session);
    let Message::Request { params, .. } = &sent[0] else {
        panic!("{sent:?}")
    };
    let monid = params[1].clone();
    let expected = json!({"T": [{"columns": ["name", "tags"], "where": [["name", "==", "a"]]}]});
    assert_eq!(params[2], expected);

    let initial = json!({"T": {UUID: {"initial": {"name": "a"}}}});
    receive(
        &mut session,
        json!({"id": id.0, "result": initial, "error": null}),
    );
    let (_, others) = drain(&mut session);
    let [Output::Answered(_, Answer::Monitoring(monitor))] = others[..] else {
        panic!("{others:?}")
    };
    let tags = |session: &Session| {
        let replica = session.replica(monitor).unwrap();
        replica
            .row("T", UUID.parse().unwrap())
            .map(|row| row["tags"].to_json())
    };
    assert_eq!(
        tags(&session),
        Some(json!(["set", []])),
        "a default left out is filled in"
    );

    let mut update = |change: Value| {
        let params = json!([monid, {"T": {UUID: change}}]);
        receive(
            &mut session,
            json!({"id": null, "method": "update2", "params": params}),
        );
        let (_, others) = drain(&mut session);
        assert!(matches!(&others[..], [Output::Updated(..)]), "{others:?}");
        tags(&session)
    };
    assert_eq!(update(json!({"modify": {"tags": "x"}})), Some(json!("x")));
    let both = json!(["set", ["x", "y"]]);
    assert_eq!(update(json!({"modify": {"tags": both}})), Some(json!("y")));
    assert_eq!(update(json!({"delete": null})), None);
}

#[test]
fn an_update_that_does_not_follow_closes() {
    for change in [json!({"modify": {}}), json!({"delete": null})] {
        let mut session = session(Config::default());
        let id = session.monitor_cond(at(0), &schema(), &all_of_t()).unwrap();
        receive(
            &mut session,
            json!({"id": id.0, "result": {}, "error": null}),
        );
        let _ = drain(&mut session);
        let params = json!([0, {"T": {UUID: change}}]);
        receive(
            &mut session,
            json!({"id": null, "method": "update2", "params": params}),
        );
        let uuid = UUID.parse().unwrap();
        let table = "T".to_string();
        let reason = CloseReason::Replica(ReplicaError::UnknownRow { table, uuid });
        assert_eq!(drain(&mut session).1, [Output::Close(reason)]);
    }
}

#[test]
fn a_replica_holds_no_more_rows_than_its_bound() {
    let mut session = session(Config {
        row_count_max: 1,
        ..Config::default()
    });
    let id = session.monitor(at(0), &schema(), &all_of_t()).unwrap();
    let other = UUID.replace('1', "2");
    let rows = json!({"T": {UUID: {"new": {"name": "a"}}, other: {"new": {"name": "b"}}}});
    receive(
        &mut session,
        json!({"id": id.0, "result": rows, "error": null}),
    );
    let reason = ReplicaError::TooManyRows { row_count_max: 1 };
    let (_, others) = drain(&mut session);
    assert_eq!(
        others.last(),
        Some(&Output::Close(CloseReason::Replica(reason)))
    );
}

#[test]
fn updates_of_a_cancelled_monitor_are_ignored() {
    let mut session = session(Config::default());
    let id = session.monitor(at(0), &schema(), &all_of_t()).unwrap();
    receive(
        &mut session,
        json!({"id": id.0, "result": {}, "error": null}),
    );
    let (_, others) = drain(&mut session);
    let [Output::Answered(_, Answer::Monitoring(monitor))] = others[..] else {
        panic!("{others:?}")
    };
    session.monitor_cancel(at(0), monitor).unwrap();
    assert!(session.replica(monitor).is_none());
    let params = json!([monitor.0, {"T": {UUID: {"delete": null}}}]);
    receive(
        &mut session,
        json!({"id": null, "method": "update2", "params": params}),
    );
    assert_eq!(drain(&mut session).1, []);
}

#[test]
fn locks_are_asked_for_waited_for_and_lost() {
    let mut session = session(Config::default());
    let id = session.lock(at(0), "l").unwrap();
    let _ = drain(&mut session);
    receive(
        &mut session,
        json!({"id": id.0, "result": {"locked": false}, "error": null}),
    );
    receive(
        &mut session,
        json!({"id": null, "method": "locked", "params": ["l"]}),
    );
    receive(
        &mut session,
        json!({"id": null, "method": "stolen", "params": ["l"]}),
    );
    let waiting = Output::Answered(id, Answer::Lock { locked: false });
    let expected = [
        waiting,
        Output::Locked("l".into()),
        Output::Stolen("l".into()),
    ];
    assert_eq!(drain(&mut session).1, expected);
}

#[test]
fn a_message_has_to_be_complete_in_time_however_often_a_byte_of_it_comes() {
    let mut session = session(Config {
        message_timeout: Some(Duration::from_secs(8)),
        ..Config::default()
    });
    session.handle_bytes(at(1), br#"{"method":"echo","id":"x","params":[]}{"#);
    for second in 2..9 {
        session.handle_bytes(at(second), b" ");
        session.handle_timeout(at(second));
        assert!(!session.is_closed(), "at {second} s");
    }
    assert_eq!(session.poll_timeout(), Some((at(9), "OVSDB message")));
    session.handle_timeout(at(9));
    let (_, others) = drain(&mut session);
    assert_eq!(others, [Output::Close(CloseReason::Unfinished)]);
}

#[test]
fn until_something_is_monitored_other_limits_hold() {
    let config = Config {
        first_limits: Some(Limits {
            message_bytes_max: 1000,
            ..Limits::default()
        }),
        ..Config::default()
    };
    let long = format!(
        r#"{{"id":0,"result":["{}"],"error":null}}"#,
        "x".repeat(1000)
    );
    let mut first = session(config);
    let _ = first.list_dbs(at(0)).unwrap();
    first.handle_bytes(at(0), long.as_bytes());
    let (_, others) = drain(&mut first);
    let too_long = SplitError::MessageTooLong { bytes_max: 1000 };
    assert_eq!(
        others.last(),
        Some(&Output::Close(CloseReason::Split(too_long)))
    );

    let mut later = session(config);
    let id = later.monitor_cond(at(0), &schema(), &all_of_t()).unwrap();
    let row = json!({"initial": {"name": "x".repeat(1000)}});
    let rows = json!({"T": {"00000000-0000-0000-0000-000000000001": row}});
    receive(
        &mut later,
        json!({"id": id.0, "result": rows, "error": null}),
    );
    let (_, others) = drain(&mut later);
    assert!(matches!(
        &others[..],
        [Output::Answered(_, Answer::Monitoring(_))]
    ));
}

/// Whatever the server sends there would be sent back to it, or kept until somebody takes it.
#[test]
fn a_long_message_that_nobody_asked_for_closes() {
    let long = "x".repeat(5000);
    for message in [
        json!({"id": 1, "method": "echo", "params": [long]}),
        json!({"id": 1, "method": long, "params": []}),
        json!({"id": null, "method": "news", "params": [long]}),
    ] {
        let mut session = session(Config::default());
        receive(&mut session, message);
        let unasked = CloseReason::Unasked { bytes_max: 4096 };
        assert_eq!(drain(&mut session), (vec![], vec![Output::Close(unasked)]));
    }
}

#[test]
fn updates_before_the_first_rows_are_ignored() {
    let mut session = session(Config::default());
    let id = session.monitor_cond(at(0), &schema(), &all_of_t()).unwrap();
    let _ = drain(&mut session);
    let insert = json!({"T": {"00000000-0000-0000-0000-000000000001": {"insert": {}}}});
    let update = json!({"id": null, "method": "update2", "params": [id.0, insert]});
    receive(&mut session, update.clone());
    assert_eq!(drain(&mut session), (vec![], vec![]));
    receive(
        &mut session,
        json!({"id": id.0, "result": {}, "error": null}),
    );
    let _ = drain(&mut session);
    receive(&mut session, update);
    let (_, others) = drain(&mut session);
    assert!(matches!(&others[..], [Output::Updated(_, changes)] if changes.len() == 1));
}

#[test]
fn what_a_connection_holds_is_counted_and_given_back() {
    let mut session = session(Config::default());
    let id = session.monitor_cond(at(0), &schema(), &all_of_t()).unwrap();
    let _ = drain(&mut session);
    assert_eq!(session.held_bytes(), 0);
    let uuid = "00000000-0000-0000-0000-000000000001";
    let tags: Vec<String> = (0..100).map(|n| format!("tag {n}")).collect();
    let row = json!({"initial": {"name": "x".repeat(1000), "tags": ["set", tags]}});
    let answer = json!({"id": id.0, "result": {"T": {uuid: row}}, "error": null}).to_string();
    let (most, last) = answer.split_at(answer.len() - 1);
    session.handle_bytes(at(0), most.as_bytes());
    let arriving = session.held_bytes();
    assert!(arriving > most.len() + 100 * 80, "values count: {arriving}");
    session.handle_bytes(at(0), last.as_bytes());
    let rows = session.held_bytes();
    assert!((2000..20_000).contains(&rows), "{rows}");
    let delete = json!({"T": {uuid: {"delete": null}}});
    receive(
        &mut session,
        json!({"id": null, "method": "update2", "params": [id.0, delete]}),
    );
    let _ = drain(&mut session);
    assert_eq!(session.held_bytes(), 0);
}
