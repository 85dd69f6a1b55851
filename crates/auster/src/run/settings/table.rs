//! All settings of the configuration file: what each is for, its default, and what becomes of a
//! change while `auster run` runs. `auster config`, the report of a reload and the page about
//! reloads are made of this table; a test compares it with the keys that the readers know.

/// The effect of a reload on a changed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// It applies the change. The words say what it means for what is there already, if anything.
    Reload(&'static str),
    /// It leaves the setting as it is, for this reason.
    Restart(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its key behind those of its tables: `controller.lldp_interval_ms`.
    pub path: &'static str,
    /// TOML; empty where there is none.
    pub default: &'static str,
    /// The option of the command line that wins over it; empty where there is none.
    pub option: &'static str,
    pub at: At,
    pub about: &'static str,
}

const fn row(path: &'static str, default: &'static str, at: At, about: &'static str) -> Setting {
    Setting {
        path,
        default,
        option: "",
        at,
        about,
    }
}

impl Setting {
    const fn option(self, option: &'static str) -> Setting {
        Setting { option, ..self }
    }
}

const NOW: At = At::Reload("");
const KEPT: At = At::Reload("connections that were accepted stay; a closed listener takes no new");
const LATER: At = At::Reload("for connections that come later");
const BOUND: At = At::Reload("what is beyond a lower limit stays until it goes by itself");
const HANDSHAKES: At = At::Reload("for handshakes that come later");
const WITHIN_API: At = At::Reload("requests that come later; open streams end");

const ENTRIES: At = At::Restart(
    "the entries of all switches follow from it; a restart keeps \
     traffic and changes them one by one",
);
const STORE: At = At::Restart("what the API is asked for would be in two places");
const THREADS: At = At::Restart("connections stay on the thread that they came to");
const DATABASES: At = At::Restart("queues in databases that are left would stay there");
const GUESTS: At =
    At::Restart("a guest's entries and tables are its own for as long as auster runs");
const MEMBER: At = At::Restart("a member joins its cluster once; restart the members in turn");
const ROOT_OF_API: At = At::Restart("the API is served with TLS, or an audit, or without");

/// Ordered as the manual shows them.
pub const SETTINGS: &[Setting] = &[
    row("listen", "", KEPT, "Where to listen for switches").option("--listen"),
    row(
        "connect",
        "",
        At::Reload("the connection to a switch that is left out ends"),
        "Switches that listen, to dial",
    )
    .option("--connect"),
    row(
        "mode",
        "\"reactive\"",
        ENTRIES,
        "When entries are set: reactive, proactive, hybrid",
    )
    .option("--mode"),
    row(
        "forwarding",
        "\"fabric\"",
        ENTRIES,
        "How packets cross the network: fabric, paths, off",
    )
    .option("--forwarding"),
    row(
        "allow_dpid",
        "",
        At::Reload("connections of other switches end"),
        "The only datapaths that are served",
    )
    .option("--allow-dpid"),
    row("drain", "[]", NOW, "Switches and links to take out"),
    row(
        "drain_wait_s",
        "3",
        NOW,
        "Patience for a pause in a path's packets",
    ),
    row(
        "ovsdb",
        "[]",
        DATABASES,
        "The switches' databases, to listen for or dial",
    )
    .option("--ovsdb"),
    row(
        "bfd_interval_ms",
        "",
        NOW,
        "Switches watch their links by BFD",
    ),
    row(
        "state",
        "",
        STORE,
        "A folder that keeps what the API is asked for",
    )
    .option("--state"),
    row(
        "status",
        "",
        NOW,
        "A Unix socket that gives the network's state",
    )
    .option("--status"),
    row(
        "api_hosts",
        "[]",
        NOW,
        "Further names by which clients call the API",
    )
    .option("--api-host"),
    row("json", "false", NOW, "Print events as JSON lines").option("--json"),
    row("threads", "", THREADS, "Threads that serve connections").option("--threads"),
    row(
        "policy",
        "\"auster\"",
        NOW,
        "Which messages go first: auster, paper, none or a file",
    )
    .option("--policy"),
    row("topology", "", NOW, "The network as it is meant to be").option("--topology"),
    row(
        "links",
        "\"discover\"",
        NOW,
        "Which links come up: discover, enforce",
    ),
    row(
        "edge_ports",
        "[]",
        NOW,
        "Ports that are never ends of a link",
    ),
    row(
        "vlans",
        "\"file\"",
        NOW,
        "Whether ports follow the databases too: file, ovsdb",
    ),
    row("tls.private_key", "", HANDSHAKES, "Our private key").option("--private-key"),
    row("tls.certificate", "", HANDSHAKES, "Our certificate").option("--certificate"),
    row("tls.ca", "", HANDSHAKES, "The CA of switches' certificates").option("--ca-cert"),
    row(
        "tls.crl",
        "",
        HANDSHAKES,
        "Revoked certificates of switches",
    )
    .option("--crl"),
    row(
        "api.listen",
        "",
        At::Reload("requests under way are answered; streams there end"),
        "Where the REST API is served",
    )
    .option("--api"),
    row(
        "api.hosts",
        "[]",
        NOW,
        "Further names by which clients call the API",
    ),
    row(
        "api.tokens",
        "",
        WITHIN_API,
        "The file of users who have a token",
    ),
    row(
        "api.audit",
        "",
        ROOT_OF_API,
        "The file with a line for each change",
    ),
    row(
        "api.relays",
        "[]",
        NOW,
        "Status sockets of relays, for the page",
    ),
    row(
        "api.tls.private_key",
        "",
        WITHIN_API,
        "The API's private key",
    ),
    row(
        "api.tls.certificate",
        "",
        WITHIN_API,
        "The API's certificate",
    ),
    row(
        "api.tls.ca",
        "",
        WITHIN_API,
        "The CA of users' certificates",
    ),
    row(
        "api.tls.crl",
        "",
        WITHIN_API,
        "Revoked certificates of users",
    ),
    row(
        "metrics.ports",
        "false",
        NOW,
        "Counters of each port at /metrics",
    ),
    row(
        "metrics.queues",
        "false",
        NOW,
        "Counters of each queue at /metrics",
    ),
    row(
        "metrics.ports_max",
        "4096",
        NOW,
        "The most ports with counters",
    ),
    row(
        "metrics.faucet",
        "false",
        NOW,
        "Faucet's and Gauge's names beside ours",
    ),
    row(
        "controller.idle_timeout_s",
        "",
        NOW,
        "Selects policy fixed of [timeouts]",
    ),
    row(
        "controller.hard_timeout_s",
        "",
        NOW,
        "Selects policy fixed of [timeouts]",
    ),
    row(
        "controller.lldp_interval_ms",
        "1000",
        NOW,
        "Time between two LLDP frames of a port",
    ),
    row(
        "controller.port_hold_ms",
        "600",
        At::Reload("for ports that come up later"),
        "How long a new port neither learns nor is flooded to",
    ),
    row(
        "controller.switch_grace_ms",
        "5000",
        At::Reload("for switches that leave later"),
        "How long the links of a switch that left stay",
    ),
    row(
        "controller.switch_count_max",
        "10000",
        BOUND,
        "Switches at most",
    ),
    row(
        "controller.host_count_max",
        "2097152",
        BOUND,
        "Hosts at most",
    ),
    row(
        "controller.hosts_per_switch_max",
        "524288",
        BOUND,
        "Hosts of one switch at most",
    ),
    row(
        "controller.hosts_per_port_max",
        "131072",
        BOUND,
        "Hosts of one port at most",
    ),
    row(
        "controller.host_idle_s",
        "14400",
        NOW,
        "Silence after which a host is asked",
    ),
    row(
        "controller.path_count_max",
        "262144",
        BOUND,
        "Pairs of hosts with a path at most",
    ),
    row(
        "controller.arp_inspection",
        "false",
        NOW,
        "Drop claims of others' IP addresses",
    ),
    row(
        "controller.paths_per_switch_max",
        "131072",
        BOUND,
        "Paths of one switch at most",
    ),
    row(
        "controller.paths_per_port_max",
        "65536",
        BOUND,
        "Paths of one port at most",
    ),
    row(
        "controller.path_rate_max",
        "2000",
        NOW,
        "New paths of one port per second",
    ),
    row(
        "controller.flood_rate_max",
        "500",
        NOW,
        "Broadcasts of one port per second",
    ),
    row(
        "controller.flood_packet_outs_max",
        "30000",
        NOW,
        "Packet-outs for all broadcasts per \
         second",
    ),
    row(
        "fabric.tag",
        "0x8100",
        ENTRIES,
        "The EtherType of the tag with a label",
    ),
    row(
        "fabric.equal_paths",
        "\"share\"",
        ENTRIES,
        "Whether equal paths are shared",
    ),
    row(
        "multicast.snooping",
        "",
        ENTRIES,
        "Send multicast to members only",
    ),
    row(
        "multicast.querier",
        "",
        ENTRIES,
        "The address that asks for members",
    ),
    row(
        "multicast.query_interval_s",
        "",
        ENTRIES,
        "Time between two questions",
    ),
    row(
        "multicast.fast_leave",
        "",
        ENTRIES,
        "A leave ends a membership at once",
    ),
    row(
        "multicast.router_ports",
        "",
        ENTRIES,
        "Ports that may have multicast routers",
    ),
    row(
        "timeouts.policy",
        "\"lease\"",
        NOW,
        "How long entries live: lease, paper, fixed",
    ),
    row(
        "timeouts.first_packets",
        "\"preinstall\"",
        NOW,
        "The first packets of a flow",
    ),
    row("timeouts.load", "\"process\"", NOW, "What is meant by load"),
    row(
        "timeouts.table_entries_max",
        "",
        NOW,
        "Entries that a switch's table takes",
    ),
    row("timeouts.switches", "", NOW, "The same for single switches"),
    row(
        "timeouts.idle_s",
        "",
        NOW,
        "Idle timeout of policies fixed and paper",
    ),
    row("timeouts.hard_s", "", NOW, "Hard timeout of policy fixed"),
    row("timeouts.base_s", "", NOW, "Timeout of policy paper"),
    row(
        "timeouts.raised_s",
        "",
        NOW,
        "Timeout of policy paper under load",
    ),
    row("timeouts.cpu_percent", "", NOW, "The load of policy paper"),
    row(
        "timeouts.idle_max_s",
        "60",
        NOW,
        "Longest idle timeout of policy lease",
    ),
    row(
        "timeouts.idle_min_s",
        "1",
        NOW,
        "Shortest idle timeout of policy lease",
    ),
    row(
        "timeouts.lease_s",
        "",
        NOW,
        "Hard timeout of policy lease, renewed",
    ),
    row(
        "timeouts.lease_max_s",
        "300",
        NOW,
        "Longest hard timeout of policy lease",
    ),
    row("timeouts.renewals_max", "1000", NOW, "Renewals per second"),
    row(
        "timeouts.class",
        "",
        NOW,
        "Hosts and services with timeouts of their own, or forbidden",
    ),
    row(
        "session.hello_timeout_ms",
        "5000",
        LATER,
        "Patience for a HELLO",
    ),
    row(
        "session.features_timeout_ms",
        "10000",
        LATER,
        "Patience for the features",
    ),
    row(
        "session.message_timeout_ms",
        "10000",
        LATER,
        "From a message's first byte to its last",
    ),
    row(
        "session.echo_interval_ms",
        "5000",
        LATER,
        "Time between two echoes",
    ),
    row(
        "session.echo_unanswered_max",
        "3",
        LATER,
        "Echoes without an answer",
    ),
    row(
        "session.guard",
        "true",
        LATER,
        "Stand by where another controller serves a switch",
    ),
    row(
        "session.packet_ins_max",
        "1024",
        NOW,
        "Packet-ins of a switch that wait",
    ),
    row(
        "session.messages_max",
        "1024",
        NOW,
        "Other messages of a switch that wait",
    ),
    row(
        "session.packet_in_rate_max",
        "200000",
        LATER,
        "Packet-ins of a switch per second",
    ),
    row(
        "session.versions",
        "[\"1.0\", \"1.3\"]",
        LATER,
        "Versions of OpenFlow that are offered",
    )
    .option("--versions"),
    row(
        "session.bundles",
        "\"auto\"",
        NOW,
        "Whether changes take effect at once at a switch that can: auto, off",
    ),
    row("qos", "", NOW, "Queues, services, policies and circuits"),
    row(
        "vlan",
        "",
        NOW,
        "VLANs, with their gateways and access lists",
    ),
    row(
        "port",
        "",
        NOW,
        "Ports: VLANs, access lists, bindings and guards",
    ),
    row(
        "acl",
        "",
        At::Reload("only entries of rules that differ change"),
        "Access lists",
    ),
    row("guard.dhcp_servers", "", NOW, "Ports with DHCP servers"),
    row("guard.routers", "", NOW, "Ports with IPv6 routers"),
    row(
        "bond",
        "",
        At::Reload("a bond that has changed begins anew"),
        "Ports used as one",
    ),
    row("mirror", "", NOW, "Copies of ports' packets"),
    row("route", "", NOW, "Routes behind gateways"),
    row(
        "guest",
        "",
        GUESTS,
        "Other controllers that see switches through auster",
    )
    .option("--guest"),
    row("cluster.etcd", "", MEMBER, "The members of etcd"),
    row("cluster.id", "", MEMBER, "The name of the cluster"),
    row("cluster.name", "", MEMBER, "Our name in it"),
    row("cluster.listen", "", MEMBER, "Where other members come"),
    row("cluster.address", "", MEMBER, "Where other members dial"),
    row("cluster.ca", "", MEMBER, "The CA of members and etcd"),
    row("cluster.state", "", MEMBER, "A folder of this member"),
];

/// Settings of which the first appears, or the last goes: then a reload cannot apply them.
pub const FROM_THE_START: &[(&[&str], &str)] = &[
    (
        &["tls.private_key", "tls.certificate", "tls.ca"],
        "switches are served with certificates from the start, or without",
    ),
    (&["api.listen"], "the API is served from the start, or not"),
    (
        &["api.tokens"],
        "users of the API have tokens from the start, or not",
    ),
    (
        &["api.tls.private_key", "api.tls.certificate"],
        "the API is served with TLS from the start, or without",
    ),
    (
        &["api.tls.ca"],
        "users of the API have certificates from the start, or not",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../../../docs/run-reload.md");

    fn words(at: At) -> String {
        match at {
            At::Reload("") => "applies".to_owned(),
            At::Reload(words) => format!("applies: {words}"),
            At::Restart(why) => format!("needs a restart: {why}"),
        }
    }

    /// The table of the manual: the settings with the same answer in one row.
    fn table() -> String {
        let mut all: Vec<At> = Vec::new();
        for setting in SETTINGS {
            if !all.contains(&setting.at) {
                all.push(setting.at);
            }
        }
        let row = |at: &At| {
            let same = SETTINGS.iter().filter(|setting| setting.at == *at);
            let names: Vec<_> = same.map(|setting| format!("`{}`", setting.path)).collect();
            format!("| {} | {} |\n", words(*at), names.join(", "))
        };
        all.iter().map(row).collect()
    }

    #[test]
    fn the_manual_says_of_every_setting_what_a_reload_does() {
        let table = table();
        assert!(
            MANUAL.contains(&table),
            "docs/run-reload.md must have:\n{table}"
        );
        for (paths, why) in FROM_THE_START {
            let names: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
            let row = format!("| {} | {why} |\n", names.join(", "));
            assert!(
                MANUAL.contains(&row),
                "docs/run-reload.md must have:\n{row}"
            );
            let known = |path: &&&str| SETTINGS.iter().any(|setting| setting.path == **path);
            assert_eq!(paths.iter().filter(known).count(), paths.len(), "{paths:?}");
        }
    }

    #[test]
    fn no_setting_needs_a_restart_without_a_reason() {
        for setting in SETTINGS {
            if let At::Restart(why) = setting.at {
                assert!(why.split(' ').count() > 3, "{}", setting.path);
            }
            assert!(!setting.about.is_empty(), "{}", setting.path);
        }
    }
}
