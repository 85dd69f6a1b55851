//! The kinds of events that readers can choose.

use config::fields::nearest;

/// Every kind that a reader can get, by name.
pub const KINDS: [&str; 72] = [
    "access",
    "address_moved",
    "alarm",
    "bfd",
    "bond",
    "bundle_refused",
    "certificate",
    "certificate_refused",
    "cluster_assigned",
    "cluster_confirmed",
    "cluster_deaf",
    "cluster_epoch",
    "cluster_exhausted",
    "cluster_foreign",
    "cluster_heard",
    "cluster_hears_again",
    "cluster_holds",
    "cluster_restored",
    "cluster_schema",
    "cluster_store_back",
    "cluster_store_full",
    "cluster_store_lost",
    "cluster_store_room",
    "cluster_suspected",
    "cluster_took_over",
    "cluster_yielded",
    "cut",
    "database_down",
    "database_up",
    "drain",
    "flow_ended",
    "flow_mended",
    "gateways",
    "guest_connected",
    "guest_disconnected",
    "host_learned",
    "host_moved",
    "hosts_learned",
    "intent_dropped",
    "intent_layout",
    "intent_left_out",
    "intent_missing",
    "link_down",
    "link_up",
    "listening",
    "listening_for_databases",
    "member",
    "no_way",
    "no_way_mended",
    "policy",
    "policy_alone",
    "policy_shared",
    "port_down",
    "port_opened",
    "port_up",
    "qos",
    "reconciled",
    "refused",
    "reload_refused",
    "reloaded",
    "reset",
    "serving",
    "standing_by",
    "switch_down",
    "switch_lost",
    "switch_up",
    "timeouts",
    "tokens",
    "topology",
    "topology_agrees",
    "topology_differs",
    "vlans",
];

/// The number of kinds suggested for an unknown one.
const NEAREST: usize = 3;

/// Reads the name of a kind.
///
/// # Errors
/// No event is of that kind. The text names the nearest ones, and where the list is.
pub fn event_kind(text: &str) -> Result<String, String> {
    if KINDS.contains(&text) {
        return Ok(text.to_owned());
    }
    let text: String = text.chars().take(64).collect();
    let nearest = match &*text {
        "packet_in" => "; packets come by /v1/taps/OWNER/packets".to_owned(),
        _ => match &nearest(&text, &KINDS, NEAREST)[..] {
            [] => String::new(),
            nearest => format!("; near it: {}", nearest.join(", ")),
        },
    };
    Err(format!(
        "'{}' is no kind of event{nearest}; docs/run-events.md has all",
        text.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names that follow `before` in quotes.
    fn quoted<'t>(text: &'t str, before: &str) -> BTreeSet<&'t str> {
        let behind = text.split(before).skip(1);
        let quoted = behind.filter_map(|rest| rest.split_once('"'));
        let names = quoted.map(|(name, _)| name);
        let is_name = |name: &&str| {
            !name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase())
        };
        names.filter(is_name).collect()
    }

    /// The text of a function up to the next one without indentation.
    fn function<'t>(text: &'t str, head: &str) -> &'t str {
        let behind = text.split_once(head).unwrap().1;
        behind.split("\n}\n").next().unwrap()
    }

    #[test]
    fn the_list_has_every_kind_that_is_reported() {
        let source = include_str!("../../auster/src/run/events.rs");
        let source = source.split("#[cfg(test)]").next().unwrap();
        let mut reported = quoted(source, "\"event\": \"");
        for only_printed in ["left_out", "lines_dropped"] {
            assert!(reported.remove(only_printed), "{only_printed}");
        }
        reported.extend(quoted(source, "let (event, at) = (\""));
        let reloaded = function(source, "pub fn reloaded");
        reported.extend(quoted(reloaded, "=> \""));
        reported.extend(quoted(include_str!("events.rs"), "\"event\": \""));
        let cluster = function(source, "fn describe_cluster");
        let cluster: BTreeSet<String> = quoted(cluster, "(\"")
            .into_iter()
            .chain(quoted(cluster, "(\n            \""))
            .map(|kind| format!("cluster_{kind}"))
            .collect();
        let intent = source.split_once("pub fn intent").unwrap().1;
        let intent = intent.split("\n    }\n").next().unwrap();
        let intent: BTreeSet<String> = quoted(intent, "(\"")
            .into_iter()
            .chain(quoted(intent, "(\n                    \""))
            .map(|kind| format!("intent_{kind}"))
            .collect();
        reported.extend(cluster.iter().chain(&intent).map(|kind| &**kind));
        let listed: BTreeSet<&str> = KINDS.into_iter().collect();
        assert_eq!(reported, listed);
        assert!(KINDS.is_sorted());
    }

    #[test]
    fn an_unknown_kind_is_named_with_the_nearest() {
        assert_eq!(event_kind("link_down").as_deref(), Ok("link_down"));
        let wrong = event_kind("link_dwn").unwrap_err();
        let begin = "'link_dwn' is no kind of event; near it: link_down, ";
        assert!(wrong.starts_with(begin), "{wrong}");
        let wrong = event_kind("port").unwrap_err();
        let ports = ["port_up", "port_down", "port_opened"];
        assert!(ports.iter().all(|kind| wrong.contains(kind)), "{wrong}");
        for far in ["qqqqqqqqqq", "", &"x".repeat(5000)] {
            let wrong = event_kind(far).unwrap_err();
            let end = "' is no kind of event; docs/run-events.md has all";
            assert!(wrong.len() < 120 && wrong.ends_with(end), "{wrong}");
        }
        let packets = event_kind("packet_in").unwrap_err();
        assert!(packets.contains("/v1/taps/OWNER/packets"), "{packets}");
    }

    #[test]
    fn the_manual_has_every_kind() {
        let manual = include_str!("../../../docs/run-events.md");
        let missing: Vec<&str> = KINDS
            .into_iter()
            .filter(|kind| !manual.contains(&format!("`{kind}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
