//! `[multicast]`: whether switches copy multicast to the ports of members, and who queries for
//! members.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use control::controller::MulticastConfig;
use control::multicast::{Config, QuerierAddresses};
use toml::de::DeTable;

use super::fields::Fields;
use super::settings::table::keys_of;
use super::topology;

const QUERY_INTERVAL_S: RangeInclusive<u64> = 10..=3600;

/// The time that a port has to answer after a leave. It has this twice: a stream ends within a
/// second.
const LAST_MEMBER_INTERVAL: Duration = Duration::from_millis(400);

/// The locally administered address fe80::61:75ff:fe73:7472, derived from the controller's own
/// Ethernet address (RFC 4291, appendix A).
const OWN_IPV6: [u16; 8] = [0xfe80, 0, 0, 0, 0x0061, 0x75ff, 0xfe73, 0x7472];

/// Reads the table. `None`: multicast is flooded.
pub(super) fn read(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Option<MulticastConfig> {
    fields.only(table, "multicast", &keys_of("multicast"));
    let is_on = fields.bool(table, "snooping").unwrap_or(true);
    let querier = fields.parsed(table, "querier", "10.0.0.1", |text| match text {
        "off" => Ok(None),
        address => address
            .parse::<Ipv4Addr>()
            .ok()
            .filter(|ip| !ip.is_multicast() && !ip.is_broadcast())
            .map(Some)
            .ok_or_else(|| format!("'{text}' is neither an IPv4 address nor off")),
    });
    let querier = querier.unwrap_or(Some(Ipv4Addr::UNSPECIFIED));
    let asks = querier.is_some();
    let router_ports = fields.list(table, "router_ports", "1:4", topology::edge_port);
    let router_ports = router_ports.into_iter().collect();
    let interval = fields.integer(table, "query_interval_s", QUERY_INTERVAL_S);
    let is_fast_leave = fields.bool(table, "fast_leave").unwrap_or(false);
    let default = Config::default();
    let query_interval = interval.map_or(default.query_interval, Duration::from_secs);
    // Hosts must answer before the next query.
    let response_interval = default.response_interval.min(query_interval / 2);
    let addresses = |ipv4| QuerierAddresses {
        ipv4: Some(ipv4),
        ipv6: Some(OWN_IPV6.into()),
    };
    let config = MulticastConfig {
        snooping: Config {
            query_interval,
            response_interval,
            last_member_interval: LAST_MEMBER_INTERVAL,
            is_fast_leave,
            ..default
        },
        querier: querier.map(addresses),
        // Where auster sends the queries, a router is the exception.
        router_ports: (asks || table.contains_key("router_ports")).then_some(router_ports),
    };
    is_on.then_some(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn config(text: &str) -> Result<Option<MulticastConfig>, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let table = fields.table(&root, "multicast");
        let config = table.and_then(|table| read(&mut fields, table));
        let done = fields.finish("f.toml").map_err(without_columns);
        done.map(|()| config)
    }

    #[test]
    fn a_table_turns_snooping_on() {
        assert_eq!(config(""), Ok(None));
        assert_eq!(config("[multicast]\nsnooping = false"), Ok(None));
        let of = |text| config(text).expect("it is right").expect("it is on");
        let asks = |text| of(text).querier.and_then(|querier| querier.ipv4);
        assert_eq!(asks("[multicast]"), Some(Ipv4Addr::UNSPECIFIED));
        let named = asks("[multicast]\nquerier = \"10.0.0.9\"");
        assert_eq!(named, Some([10, 0, 0, 9].into()));
        assert_eq!(of("[multicast]\nquerier = \"off\"").querier, None);
        let ports = |text| of(text).router_ports.map(|ports| ports.len());
        assert_eq!(ports("[multicast]"), Some(0), "auster asks");
        assert_eq!(ports("[multicast]\nquerier = \"off\""), None, "any port");
        assert_eq!(ports("[multicast]\nrouter_ports = \"1:4\""), Some(1));
        let often = of("[multicast]\nquery_interval_s = 10").snooping;
        assert_eq!(often.query_interval, Duration::from_secs(10));
        assert_eq!(often.response_interval, Duration::from_secs(5));
    }

    #[test]
    fn mistakes_are_told_all_together() {
        let text = "[multicast]\nsnoop = true\nquerier = \"224.0.0.1\"\nquery_interval_s = 1\n\
                    fast_leave = \"no\"";
        let problems = config(text).expect_err("mistakes");
        let all = problems.join("\n");
        for (line, part) in [
            (2, "snoop"),
            (3, "querier"),
            (4, "10 to 3600"),
            (5, "fast_leave"),
        ] {
            let told = problems
                .iter()
                .find(|told| told.contains(&format!("f.toml:{line}")));
            assert!(
                told.is_some_and(|told| told.contains(part)),
                "line {line}: {all}"
            );
        }
        assert_eq!(problems.len(), 4, "{all}");
    }
}
