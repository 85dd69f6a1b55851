//! Keys of Faucet without a counterpart in auster, and the reasons.

use crate::import::yaml::{Node, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Top,
    Vlan,
    Switch,
    Port,
}

/// The VLANs of an end of a link.
pub const LINK: &str = "the port is a link between switches, which carries all VLANs";
/// A port that has no VLAN.
pub const OUTSIDE: &str = "no VLAN: with auster the port reaches others that have none";

/// A rule of an access list.
pub const MATCH: &str = "auster has no match for a field of this rule";
pub const LIST: &str = "auster has no match for a rule of the access list, or it is too long";
pub const LINK_LIST: &str = "auster judges no packets between switches";
pub const OUT_LIST: &str = "routing changes a field that a rule of this acl_out matches";
pub const OUT_WITHIN: &str = "packets within a VLAN are not judged by its acl_out";
pub const NEVER_REACHED: &str = "rules that an earlier one makes useless are left out";
pub const ACTIONS: &str = "actions of rules are not carried over, but for allow and mirror";

const ACLS: &str = "access lists of this place or direction are not carried over";
const METERS: &str = "meters are not carried over";
/// A gateway whose VLAN Faucet does not route to all others.
pub const ROUTERS: &str = "auster routes between all VLANs with a gateway, and Faucet does not";
pub const ROUTER: &str = "settings of a router are not carried over, but for vlans";

const ROUTES: &str = "settings of routing are not carried over";
/// A mirror.
pub const MIRROR_USED: &str = "a port that gets copies has no VLANs, lists and copies of its own";
pub const MIRROR_DROPPED: &str = "packets that a list of the port drops are copied as well";
const DOT1X: &str = "802.1X is not carried over";
const LACP: &str = "link aggregation is not carried over";
const LINKS: &str = "auster finds links and paths by itself";
const TABLES: &str = "auster has tables and priorities of its own";
const TIMES: &str = "times and rates are not carried over; see [timeouts]";
const LEARNING: &str = "rules of learning and flooding are not carried over";
const DISABLED: &str = "the port is not disabled by auster";
pub const OUTPUT_ONLY: &str = "packets that come in at the port are not dropped by auster";
const STATUS: &str = "auster follows the state of ports by itself";
const UNKNOWN: &str = "not known, and not carried over";

/// The reason why a key with this value is not carried over. A value that switches something off
/// loses nothing.
pub fn reason(section: Section, key: &str, value: &Node) -> Option<&'static str> {
    let is_empty = match &value.value {
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Scalar { .. } => value.is_null(),
    };
    let found = common(key).or_else(|| match section {
        Section::Top => None,
        Section::Vlan => of_vlan(key),
        Section::Switch => of_switch(key),
        Section::Port => of_port(key),
    });
    match (section, key, found) {
        (Section::Switch, "hardware", _) => None,
        (Section::Port, "enabled", _) => value.is_off().then_some(DISABLED),
        (_, _, Some(DOT1X | LACP | OUTPUT_ONLY)) if value.is_off() => None,
        (_, _, Some(_)) if is_empty => None,
        (_, _, found) => Some(found.unwrap_or(UNKNOWN)),
    }
}

fn common(key: &str) -> Option<&'static str> {
    Some(match key {
        "acl_out" | "acls_out" | "dp_acls" => ACLS,
        "meters" => METERS,
        "routes" | "faucet_vips" | "faucet_mac" => ROUTES,
        _ if key.starts_with("bgp_") => ROUTES,
        _ if key.starts_with("dot1x") => DOT1X,
        _ if key.starts_with("lacp") => LACP,
        _ => return None,
    })
}

fn of_vlan(key: &str) -> Option<&'static str> {
    Some(match key {
        "unicast_flood" | "max_hosts" | "edge_learn_stack_root" => LEARNING,
        "proactive_arp_limit"
        | "proactive_nd_limit"
        | "targeted_gw_resolution"
        | "minimum_ip_size_check" => ROUTES,
        _ => return None,
    })
}

fn of_switch(key: &str) -> Option<&'static str> {
    Some(match key {
        "stack" | "lldp_beacon" => LINKS,
        "table_sizes"
        | "pipeline_config_dir"
        | "priority_offset"
        | "low_priority"
        | "high_priority"
        | "highest_priority"
        | "lowest_priority"
        | "cookie"
        | "ofchannel_log"
        | "egress_pipeline"
        | "global_vlan"
        | "min_wildcard_table_size"
        | "max_wildcard_table_size"
        | "port_table_scale_factor"
        | "drop_broadcast_source_address"
        | "drop_spoofed_faucet_mac"
        | "fast_advertise_interval"
        | "packetin_pps"
        | "slowpath_pps"
        | "metrics_rate_limit_sec" => TABLES,
        "timeout"
        | "arp_neighbor_timeout"
        | "nd_neighbor_timeout"
        | "cache_update_guard_time"
        | "idle_dst"
        | "learn_ban_timeout"
        | "learn_jitter"
        | "advertise_interval"
        | "max_resolve_backoff_time"
        | "max_host_fib_retry_count"
        | "max_hosts_per_resolve_cycle" => TIMES,
        "ignore_learn_ins"
        | "use_idle_timeout"
        | "combinatorial_port_flood"
        | "group_table"
        | "group_table_routing"
        | "restricted_bcast_arpnd"
        | "multi_out" => LEARNING,
        "proactive_learn_v4" | "proactive_learn_v6" => ROUTES,
        _ => return None,
    })
}

fn of_port(key: &str) -> Option<&'static str> {
    Some(match key {
        "output_only" => OUTPUT_ONLY,
        "opstatus_reconf" => STATUS,
        "lldp_beacon"
        | "receive_lldp"
        | "lldp_peer_mac"
        | "loop_protect"
        | "loop_protect_external"
        | "override_output_port" => LINKS,
        "unicast_flood"
        | "max_hosts"
        | "permanent_learn"
        | "hairpin"
        | "hairpin_unicast"
        | "restricted_bcast_arpnd"
        | "coprocessor"
        | "count_untag_vlan_miss"
        | "max_lldp_lost" => LEARNING,
        _ => return None,
    })
}
