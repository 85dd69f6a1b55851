use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use control::clustered::Clustered;
use control::controller::{Controller, ControllerConfig};
use control::qos::{Qos, Service};
use driver::databases::Views;
use driver::{Driver, DriverConfig};
use net::tls::Security;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

use super::*;
use crate::feed::Feed;
use crate::metrics::RefusalsOfAll;
use ::cluster::intent::Store;
use config::layout::PLACES_MAX;
use config::qos::read::Sources;

mod streams;

/// The API of a controller that has no switches.
struct Served {
    router: Router,
    held: Arc<Held>,
    reads: Arc<Reads>,
}

impl Served {
    async fn new() -> Served {
        let clock = Clock::start();
        let controller = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
        let (driver, _) = Driver::start(controller, clock, DriverConfig::default()).unwrap();
        let driver = Arc::new(driver);
        let held = Arc::new(Held::new(driver.clone(), clock));
        let reads = Reads::new(Feed::from(1000), Vec::new(), Arc::default());
        let (intent, _) = Intent::new(held.clone(), clock, "run", Store::Memory);
        intent.load().await;
        let api = Api {
            metrics: Metrics::new(
                driver.clone(),
                RefusalsOfAll::default(),
                Security::plain(),
                clock,
            ),
            driver,
            clock,
            held: held.clone(),
            views: watch::channel(Views::new()).1,
            intent,
            reads: reads.clone(),
            paces: Arc::new(Paces::new(true)),
        };
        let router = server::guarded(api.router(), server::Names::default());
        Served {
            router,
            held,
            reads,
        }
    }

    async fn send(&self, request: Request<HttpBody>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, "localhost");
        let body = body.map_or(HttpBody::empty(), |body| HttpBody::from(body.to_string()));
        let response = self.send(request.body(body).unwrap()).await;
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let bytes = bytes.unwrap();
        if status.is_client_error() || status.is_server_error() {
            assert_eq!(kind.unwrap(), "application/problem+json", "{method} {path}");
        }
        let document = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).unwrap(),
        };
        if status.is_client_error() || status.is_server_error() {
            assert_eq!(document["status"], status.as_u16());
        }
        (status, document)
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.ask("GET", path, None).await
    }
}

fn pointers(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"].as_array().unwrap();
    errors
        .iter()
        .map(|e| e["pointer"].as_str().unwrap())
        .collect()
}

/// Services exclude VLANs, whichever was set first. Neither is dropped silently.
#[tokio::test]
async fn services_do_not_go_with_vlans() {
    let served = Served::new().await;
    let voice = || Some(json!({"proto": "udp"}));
    assert!(served.held.set_vlans(true).await);
    let (status, problem) = served.ask("PUT", "/v1/services/voice", voice()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("voice") && detail.contains("VLANs"),
        "{detail}"
    );
    assert!(served.held.set_vlans(false).await);
    let (status, problem) = served.ask("PUT", "/v1/services/voice", voice()).await;
    assert_eq!(status, StatusCode::CREATED, "{problem}");
    assert!(!served.held.set_vlans(true).await);
    let (status, _) = served.ask("DELETE", "/v1/services/voice", None).await;
    assert!(status.is_success(), "{status}");
    assert!(served.held.set_vlans(true).await);
}

/// A trace request is refused with a list of its wrong parameters. A request about unknown hosts is
/// refused too.
#[tokio::test]
async fn a_trace_of_what_is_not_known_is_refused_by_parameter() {
    let served = Served::new().await;
    let refused = async |query: &str| {
        let (status, problem) = served.get(&format!("/v1/trace{query}")).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        let pointers = pointers(&problem).into_iter().map(str::to_owned);
        pointers.collect::<Vec<String>>()
    };
    assert_eq!(refused("").await, ["/src", "/dst"]);
    assert_eq!(
        refused("?src=x&dst=10.0.0.2&dport=99999").await,
        ["/src", "/dport"]
    );
    assert_eq!(refused("?src=10.0.0.1&dst=10.0.0.2").await, ["/src"]);
    assert_eq!(refused("?src=10.0.0.1&dst=10.0.0.2&in=1:2").await, ["/in"]);
    let (status, _) = served
        .get(&format!("/v1/trace?src={}", "1".repeat(3000)))
        .await;
    assert_eq!(status, StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn each_kind_is_made_shown_replaced_and_deleted() {
    let served = Served::new().await;
    let service = json!({"name": "voice", "proto": "udp", "dst_port": 5060});
    let kinds = [
        (
            "queues",
            "0000000000000001:2",
            json!({"at": "1:2", "rate": "100mbit", "queues": [{"number": 1, "class": "gold"}]}),
        ),
        ("services", "voice", service),
        (
            "policies",
            "first",
            json!({"name": "first", "service": "voice", "queue": "gold"}),
        ),
        (
            "circuits",
            "backup",
            json!({"name": "backup", "from": "10.0.0.1", "to": "10.0.0.2", "queue": 1}),
        ),
    ];
    for (kind, key, document) in &kinds {
        let (all, one) = (format!("/v1/{kind}"), format!("/v1/{kind}/{key}"));
        let (status, made) = served.ask("POST", &all, Some(document.clone())).await;
        assert_eq!(status, StatusCode::CREATED, "{kind}: {made}");
        let (status, shown) = served.get(&one).await;
        assert_eq!((status, &shown), (StatusCode::OK, &made));
        assert_eq!(served.get(&all).await.1, json!({"file": [], "api": [made]}));
        let (status, _) = served.ask("POST", &all, Some(document.clone())).await;
        assert_eq!(status, StatusCode::CONFLICT, "{kind} is there already");
        // A document that GET returned can be PUT back.
        let (status, again) = served.ask("PUT", &one, Some(shown.clone())).await;
        assert_eq!((status, &again), (StatusCode::OK, &shown), "{kind}");
    }
    for (kind, key, _) in kinds.iter().rev() {
        let one = format!("/v1/{kind}/{key}");
        let (status, _) = served.ask("DELETE", &one, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{kind}");
        assert_eq!(served.get(&one).await.0, StatusCode::NOT_FOUND);
        assert_eq!(
            served.ask("DELETE", &one, None).await.0,
            StatusCode::NOT_FOUND
        );
    }
    assert_eq!(served.held.layers().await.whole(), Qos::default());
}

#[tokio::test]
async fn all_taps_of_an_owner_end_at_once() {
    let served = Served::new().await;
    for path in ["ann/one", "ann/two", "bob/one"] {
        let path = format!("/v1/taps/{path}");
        let (status, made) = served.ask("PUT", &path, Some(json!({}))).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
    }
    // As with flows, having none is not an error.
    for _ in 0..2 {
        let (status, _) = served.ask("DELETE", "/v1/taps/ann", None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }
    let (_, left) = served.get("/v1/taps").await;
    let left = left["taps"].as_array().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["owner"], "bob");
    let (status, _) = served.ask("DELETE", "/v1/taps/a%20b", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// With two values for a field, the reader cannot know which one is meant.
#[tokio::test]
async fn a_field_that_is_there_twice_is_refused() {
    let served = Served::new().await;
    let twice = r#"{"match": "arp", "match": "ip"}"#;
    let request = Request::builder().method("PUT").uri("/v1/taps/ann/one");
    let request = request.header(header::HOST, "localhost");
    let refused = served.send(request.body(twice.into()).unwrap()).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let bytes = axum::body::to_bytes(refused.into_body(), usize::MAX).await;
    let text = String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    assert!(text.contains("'match' is there twice"), "{text}");
}

#[tokio::test]
async fn what_is_made_says_where_it_is() {
    let served = Served::new().await;
    let request = Request::post("/v1/services").header(header::HOST, "localhost:8080");
    let response = served
        .send(request.body(HttpBody::from(r#"{"name":"voice"}"#)).unwrap())
        .await;
    assert_eq!(response.headers()[header::LOCATION], "/v1/services/voice");
}

#[tokio::test]
async fn all_fields_that_are_wrong_are_told_together_and_nothing_is_changed() {
    let served = Served::new().await;
    let queues = json!([{"number": 1, "min": "20mbit", "max": "10mbit"}, {"number": 300}]);
    let body = json!({"rate": "fast", "queues": queues, "speed": 1});
    let (status, problem) = served.ask("PUT", "/v1/queues/1:2", Some(body)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        pointers(&problem),
        ["/speed", "/rate", "/queues/1/number"],
        "{problem}"
    );
    // The readable part of a body is checked against the rest.
    let queues = json!([{"number": 1, "min": "20mbit", "max": "10mbit"}]);
    let body = json!({"rate": "15mbit", "queues": queues});
    let (status, problem) = served.ask("PUT", "/v1/queues/1:2", Some(body)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        pointers(&problem),
        ["/queues", "/queues/0/min", "/queues/0/min"],
        "{problem}"
    );
    let body = json!({"name": "p", "service": "nothing", "drop": true, "mark": 70});
    let (status, problem) = served.ask("POST", "/v1/policies", Some(body)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        pointers(&problem),
        ["/service", "/drop", "/mark"],
        "{problem}"
    );
    assert_eq!(served.held.layers().await.whole(), Qos::default());
}

#[tokio::test]
async fn what_is_in_use_stays() {
    let served = Served::new().await;
    let service = json!({"name": "voice"});
    served.ask("POST", "/v1/services", Some(service)).await;
    let policy = json!({"name": "first", "service": "voice", "drop": true});
    served.ask("POST", "/v1/policies", Some(policy)).await;
    let (status, problem) = served.ask("DELETE", "/v1/services/voice", None).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert_eq!(
        detail,
        "policy 'first', service: there is no service 'voice'"
    );
    assert_eq!(served.get("/v1/services/voice").await.0, StatusCode::OK);
}

#[tokio::test]
async fn what_the_file_says_is_shown_and_not_changed() {
    let served = Served::new().await;
    let voice = Service {
        name: "voice".to_owned(),
        ..Service::default()
    };
    let file = Qos {
        services: vec![voice],
        ..Qos::default()
    };
    let set = served
        .held
        .set_file(file.clone(), &Sources::default())
        .await;
    assert_eq!(set, Ok(()));
    let shown = served.get("/v1/services").await.1;
    assert_eq!(shown, json!({"file": [{"name": "voice"}], "api": []}));
    for (method, path, body) in [
        ("PUT", "/v1/services/voice", Some(json!({}))),
        ("POST", "/v1/services", Some(json!({"name": "voice"}))),
        ("DELETE", "/v1/services/voice", None),
    ] {
        let (status, _) = served.ask(method, path, body).await;
        assert_eq!(status, StatusCode::CONFLICT, "{method}");
    }
    // After a reload without the service, it is removed. The file cannot take over a service that
    // the API has made since.
    let set = served
        .held
        .set_file(Qos::default(), &Sources::default())
        .await;
    assert_eq!(set, Ok(()));
    let (status, _) = served
        .ask("PUT", "/v1/services/voice", Some(json!({})))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let set = served.held.set_file(file, &Sources::default()).await;
    assert!(set.is_err(), "two have made it");
    let layers = served.held.layers().await;
    assert_eq!(
        (layers.file.services.len(), layers.api.services.len()),
        (0, 1)
    );
}

#[tokio::test]
async fn what_is_no_request_is_told_so() {
    let served = Served::new().await;
    let big = "x".repeat(server::BODY_BYTES_MAX + 1);
    for (method, path, body, expected) in [
        ("GET", "/nothing", "", StatusCode::NOT_FOUND),
        ("GET", "/", "", StatusCode::NOT_ACCEPTABLE),
        ("GET", "/v1/cluster", "", StatusCode::NOT_FOUND),
        (
            "GET",
            "/v1/switches/7/flows?limit=0",
            "",
            StatusCode::BAD_REQUEST,
        ),
        ("GET", "/v1/nothing", "", StatusCode::NOT_FOUND),
        ("DELETE", "/v1/services", "", StatusCode::METHOD_NOT_ALLOWED),
        (
            "PATCH",
            "/v1/services/a",
            "{}",
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        ("POST", "/v1/services", "", StatusCode::BAD_REQUEST),
        ("POST", "/v1/services", "{", StatusCode::BAD_REQUEST),
        (
            "POST",
            "/v1/services",
            "[]",
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        ("POST", "/v1/services", &big, StatusCode::PAYLOAD_TOO_LARGE),
        ("PUT", "/v1/services/a%20b", "{}", StatusCode::NOT_FOUND),
        (
            "PUT",
            "/v1/services/a",
            r#"{"name":"b"}"#,
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        ("GET", "/v1/verify?from_ms=x", "", StatusCode::BAD_REQUEST),
        ("GET", "/v1/queues/x", "", StatusCode::NOT_FOUND),
        ("GET", "/v1/switches/7", "", StatusCode::NOT_FOUND),
        ("GET", "/v1/switches/7/ports", "", StatusCode::NOT_FOUND),
        ("GET", "/stats/flow/7", "", StatusCode::NOT_FOUND),
        ("GET", "/stats/flow/x", "", StatusCode::BAD_REQUEST),
        ("POST", "/stats/flow/7", "[", StatusCode::BAD_REQUEST),
        ("PUT", "/stats/flow/7", "", StatusCode::METHOD_NOT_ALLOWED),
        (
            "POST",
            "/stats/flowentry/add",
            "{}",
            StatusCode::BAD_REQUEST,
        ),
        (
            "POST",
            "/stats/flowentry/add",
            r#"{"dpid": 1}"#,
            StatusCode::NOT_FOUND,
        ),
        (
            "POST",
            "/stats/experimenter/1",
            "{}",
            StatusCode::NOT_IMPLEMENTED,
        ),
        (
            "DELETE",
            "/stats/flowentry/clear/1",
            "",
            StatusCode::NOT_FOUND,
        ),
        ("POST", "/stats/role", "{}", StatusCode::NOT_IMPLEMENTED),
        (
            "GET",
            "/stats/queueconfig/1",
            "",
            StatusCode::NOT_IMPLEMENTED,
        ),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, "localhost");
        let request = request.body(HttpBody::from(body.to_owned())).unwrap();
        let response = served.send(request).await;
        assert_eq!(response.status(), expected, "{method} {path}");
        let kind = &response.headers()[header::CONTENT_TYPE];
        assert_eq!(kind, "application/problem+json", "{method} {path}");
    }
}

/// Without switches everything waits, and no counter has a value.
#[tokio::test]
async fn what_is_found_of_policies_and_circuits_is_told_by_name() {
    let served = Served::new().await;
    let service = json!({"name": "voice"});
    served.ask("POST", "/v1/services", Some(service)).await;
    let policy = json!({"name": "first", "service": "voice", "drop": true});
    served.ask("POST", "/v1/policies", Some(policy)).await;
    for path in ["/v1/verify", "/v1/verify?from_ms=0"] {
        let (status, found) = served.get(path).await;
        assert_eq!(status, StatusCode::OK);
        let of = &found["policies"]["first"];
        assert_eq!((&of["state"], &of["hops"]), (&json!("waiting"), &json!([])));
        assert_eq!(of["seen_ago_s"], Value::Null);
    }
    let (_, state) = served.get("/v1/state").await;
    assert_eq!(state["policies"]["first"]["state"], "waiting");
}

#[tokio::test]
async fn without_switches_there_are_none() {
    let served = Served::new().await;
    let (status, shown) = served.get("/v1/switches").await;
    assert_eq!((status, shown), (StatusCode::OK, json!({"switches": []})));
    assert_eq!(served.get("/stats/switches").await.1, json!([]));
}

#[tokio::test]
async fn metrics_are_as_prometheus_reads_them() {
    let served = Served::new().await;
    let request = Request::builder()
        .uri("/metrics")
        .header(header::HOST, "localhost");
    let response = served.send(request.body(HttpBody::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let kind = &response.headers()[header::CONTENT_TYPE];
    assert_eq!(kind, crate::exposition::CONTENT_TYPE);
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    let text = String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    for line in [
        "auster_responsive 1.0",
        "auster_of_connections 0.0",
        "auster_hosts 0.0",
        "auster_flow_mods_total 0",
        "auster_packets_dropped_total{reason=\"unreachable\"} 0",
        "# EOF",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
}

/// `AUSTER_BLESS=1` rewrites the document; the difference is reviewed.
#[tokio::test]
async fn the_document_is_the_one_that_was_committed() {
    let (status, document) = Served::new().await.get("/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let told = serde_json::to_string_pretty(&document).unwrap() + "\n";
    if std::env::var_os("AUSTER_BLESS").is_some() {
        std::fs::write(path, &told).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == told,
        "openapi.json is not what the API says of itself; AUSTER_BLESS=1 writes it anew"
    );
}

/// The answer's status and its tag.
async fn conditional(
    served: &Served,
    method: &str,
    path: &str,
    condition: Option<(&str, &str)>,
) -> (StatusCode, Option<String>) {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header(header::HOST, "localhost");
    if let Some((name, tag)) = condition {
        request = request.header(name, tag);
    }
    let body = match method {
        "PUT" => HttpBody::from("{}"),
        _ => HttpBody::empty(),
    };
    let response = served.send(request.body(body).unwrap()).await;
    let tag = response.headers().get(header::ETAG);
    let tag = tag.map(|tag| tag.to_str().unwrap().to_owned());
    (response.status(), tag)
}

#[tokio::test]
async fn a_client_changes_only_what_it_has_seen() {
    let served = Served::new().await;
    let at = "/v1/services/voice";
    let (status, _) = conditional(&served, "PUT", at, Some(("if-match", "*"))).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED, "there is none");
    let none = Some(("if-none-match", "*"));
    let (status, first) = conditional(&served, "PUT", at, none).await;
    let first = first.unwrap();
    assert_eq!(status, StatusCode::CREATED);
    let (status, _) = conditional(&served, "PUT", at, none).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED, "there is one");
    let (_, shown) = conditional(&served, "GET", at, None).await;
    assert_eq!(shown.as_ref(), Some(&first));
    // Two clients have seen the same state: one of them is too late.
    let (status, second) = conditional(&served, "PUT", at, Some(("if-match", &first))).await;
    let second = second.unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_ne!(first, second);
    for method in ["PUT", "DELETE"] {
        let (status, _) = conditional(&served, method, at, Some(("if-match", &first))).await;
        assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{method}");
    }
    let (status, _) = conditional(&served, "DELETE", at, Some(("if-match", &second))).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn places_are_one_document_which_clients_change_as_they_have_seen_it() {
    let served = Served::new().await;
    let at = "/v1/layout";
    let put = async |condition: (&str, &str), body: &Value| {
        let request = Request::builder().method("PUT").uri(at);
        let request = request.header(header::HOST, "localhost");
        let request = request.header(condition.0, condition.1);
        let body = HttpBody::from(body.to_string());
        let response = served.send(request.body(body).unwrap()).await;
        let tag = response.headers().get(header::ETAG).cloned();
        let tag = tag.map(|tag| tag.to_str().unwrap().to_owned());
        (response.status().as_u16(), tag.unwrap_or_default())
    };
    let none = json!({"places": {}});
    assert_eq!(served.get(at).await, (StatusCode::OK, none.clone()));
    assert_eq!(conditional(&served, "GET", at, None).await.1, None);
    let (status, _) = served.ask("DELETE", at, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (first, second) = (
        json!({"places": {"0000000000000001": [-75, 0]}}),
        json!({"places": {"0000000000000002": [0, 1_000_000]}}),
    );
    let (status, tag) = put(("if-none-match", "*"), &first).await;
    assert_eq!(status, 201);
    assert_eq!(put(("if-none-match", "*"), &second).await.0, 412);
    assert_eq!(put(("if-match", "\"1\""), &second).await.0, 412);
    let (_, seen) = conditional(&served, "GET", at, None).await;
    assert_eq!(seen.as_ref(), Some(&tag));
    // A PUT replaces the whole document.
    let (status, next) = put(("if-match", &tag), &second).await;
    assert_eq!((status, next == tag), (200, false));
    assert_eq!(served.get(at).await.1, second);

    let wrong = json!({"zoom": 1, "places": {"1": [0, 1e9], "x": [0, 0]}});
    let (status, problem) = served.ask("PUT", at, Some(wrong)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let pointers = pointers(&problem);
    assert_eq!(pointers, ["/zoom", "/places/1/1", "/places/x"]);

    // The most places that are kept.
    let places = (0..PLACES_MAX).map(|n| (format!("{n:016x}"), json!([-1_000_000, 1_000_000])));
    let full = json!({"places": places.collect::<serde_json::Map<_, _>>()});
    let (status, _) = served.ask("PUT", at, Some(full.clone())).await;
    assert_eq!(status, StatusCode::OK);
    let (_, exported) = served.get("/v1/intent").await;
    let other = Served::new().await;
    let (status, done) = other.ask("PUT", "/v1/intent", Some(exported)).await;
    let imported = json!({"created": 1, "replaced": 0});
    assert_eq!((status, done), (StatusCode::OK, imported));
    assert_eq!(other.get(at).await.1, full);
    let (status, _) = served.ask("DELETE", at, None).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(served.get(at).await.1, none);
}

#[tokio::test]
async fn everything_goes_out_and_in_again() {
    let served = Served::new().await;
    let put = async |path: &str, body| {
        let (status, _) = served.ask("PUT", path, Some(body)).await;
        assert!(status.is_success(), "{path}");
    };
    put("/v1/services/voice", json!({"proto": "udp"})).await;
    put(
        "/v1/policies/first",
        json!({"service": "voice", "drop": true}),
    )
    .await;
    let (_, exported) = served.get("/v1/intent").await;
    assert_eq!(exported["documents"].as_array().unwrap().len(), 2);
    assert_eq!(exported["documents"][0]["state"], "in use");

    let other = Served::new().await;
    let (status, done) = other.ask("PUT", "/v1/intent", Some(exported.clone())).await;
    assert_eq!(
        (status, done),
        (StatusCode::OK, json!({"created": 2, "replaced": 0}))
    );
    let asked = |layers: config::qos::held::Layers| layers.whole();
    let (ours, theirs) = (served.held.layers().await, other.held.layers().await);
    assert_eq!(asked(ours), asked(theirs));
    // Nothing is written twice.
    let (_, done) = other.ask("PUT", "/v1/intent", Some(exported.clone())).await;
    assert_eq!(done, json!({"created": 0, "replaced": 0}));

    // One mistake anywhere, and nothing is changed.
    let mut wrong = exported;
    wrong["documents"][0]["name"] = json!("second");
    wrong["documents"][1]["document"]["proto"] = json!("http");
    let third = Served::new().await;
    let (status, problem) = third.ask("PUT", "/v1/intent", Some(wrong)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        pointers(&problem),
        ["/documents/0/document", "/documents/1/document/proto"]
    );
    assert_eq!(third.held.layers().await.whole(), Qos::default());
}

/// Every client can read every answer. Clients that accept gzip receive large answers compressed.
/// Each list goes to 9,600 ports, nearly a second of all applications' packets.
#[tokio::test]
async fn applications_that_send_too_much_are_refused_until_later() {
    let served = Served::new().await;
    let ports: Vec<String> = (1..=64).map(|port| format!("1:{port}")).collect();
    let packet = json!({"at": ports, "data": "A".repeat(80)});
    let list = Value::from(vec![packet; 150]).to_string();
    let ask = || {
        let request = Request::post("/v1/packets").header(header::HOST, "localhost");
        served.send(request.body(HttpBody::from(list.clone())).unwrap())
    };
    let answers = tokio::join!(ask(), ask(), ask(), ask());
    let answers = [answers.0, answers.1, answers.2, answers.3];
    // Switch 1 does not exist.
    assert_eq!(answers[0].status(), StatusCode::UNPROCESSABLE_ENTITY);
    let is_refused = |answer: &&Response| answer.status() == StatusCode::TOO_MANY_REQUESTS;
    let refused: Vec<&Response> = answers.iter().filter(is_refused).collect();
    assert!(!refused.is_empty());
    assert!(
        refused
            .iter()
            .all(|it| it.headers().contains_key(header::RETRY_AFTER))
    );
}

#[tokio::test]
async fn large_answers_are_compressed_for_clients_that_accept_it() {
    let served = Served::new().await;
    for (path, is_packed) in [
        ("/openapi.json", true),
        ("/metrics", true),
        ("/v1/topology", true),
        ("/v1/hosts", false),
        ("/v1/nothing", false),
    ] {
        let ask = async |encoding: &str| {
            let request = Request::builder().uri(path);
            let request = request.header(header::ACCEPT_ENCODING, encoding);
            let request = request.header(header::HOST, "localhost");
            let response = served.send(request.body(HttpBody::empty()).unwrap()).await;
            let headers = response.headers().clone();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            (headers, body.unwrap())
        };
        let (headers, plain) = ask("gzip;q=0").await;
        assert!(!headers.contains_key(header::CONTENT_ENCODING), "{path}");
        let (headers, packed) = ask("br, gzip").await;
        let encoding = headers.get(header::CONTENT_ENCODING);
        assert_eq!(encoding.is_some(), is_packed, "{path}");
        if !is_packed {
            continue;
        }
        assert_eq!(headers[header::VARY], "accept-encoding");
        let mut read = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&packed[..]);
        std::io::Read::read_to_string(&mut decoder, &mut read).unwrap();
        // Figures of the process change from one answer to the next.
        let begins = |text: &[u8]| text[..20.min(text.len())].to_vec();
        assert_eq!(begins(read.as_bytes()), begins(&plain), "{path}");
        if path == "/openapi.json" {
            assert_eq!(read.as_bytes(), &plain[..]);
            assert!(packed.len() * 4 < plain.len());
        }
    }
}
