//! The compared methods to carry messages: the columns of the tables.

/// A method to carry the messages of all agents between the two ends.
#[derive(Debug, PartialEq)]
pub struct Method {
    pub name: &'static str,
    /// One line for the help and the documents.
    pub about: &'static str,
    pub carrier: Carrier,
    pub congestion: Congestion,
    /// Messages wait this long for others and are written together; 0 writes each by itself.
    pub window_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carrier {
    /// Kernel TCP, bare or under TLS 1.3 with certificates on both sides.
    Tcp(Tcp),
    Quic(Quic),
    /// Our relay pair: TCP from the agent to the relay beside it, over loopback.
    Relay(Relay),
}

/// The settings of the relay pair that flags can change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relay {
    /// `--coalesce packet=…`; 0 is without.
    pub window_us: u64,
    /// `--duplicate packet`.
    pub is_doubled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tcp {
    pub is_tls: bool,
    pub nodelay: bool,
    /// All agents on one connection instead of one each.
    pub is_shared: bool,
    /// The kernel's least retransmission timeout, where it is not the default of 200 ms.
    pub rto_min_us: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quic {
    pub streams: Streams,
    /// ACK frequency (threshold 10, 25 ms) and connection ids of 4 and 0 bytes.
    pub is_thin: bool,
    pub window_floor_bytes: Option<u64>,
}

/// The streams of a QUIC connection that carry the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    PerAgent,
    RoundRobin(usize),
    PerMessage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    Cubic,
    Bbr,
}

impl Method {
    pub fn parse(name: &str) -> Result<&'static Method, String> {
        METHODS
            .iter()
            .find(|method| method.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = METHODS.iter().map(|method| method.name).collect();
                format!("'{name}' is no method; write one of {}", names.join(" "))
            })
    }

    pub fn is_quic(&self) -> bool {
        !matches!(self.carrier, Carrier::Tcp(_))
    }

    /// Connections that cross the link.
    pub fn connections(&self, agents: usize) -> usize {
        match self.carrier {
            Carrier::Tcp(tcp) if !tcp.is_shared => agents,
            _ => 1,
        }
    }

    const fn window(mut self, name: &'static str, about: &'static str, window_ms: u64) -> Method {
        (self.name, self.about, self.window_ms) = (name, about, window_ms);
        self
    }

    const fn bbr(mut self, name: &'static str, about: &'static str) -> Method {
        (self.name, self.about, self.congestion) = (name, about, Congestion::Bbr);
        self
    }
}

const PLAIN: Tcp = Tcp {
    is_tls: false,
    nodelay: true,
    is_shared: false,
    rto_min_us: None,
};
const TLS: Tcp = Tcp {
    is_tls: true,
    ..PLAIN
};
const TLS_SHARED: Tcp = Tcp {
    is_shared: true,
    ..TLS
};
const FLOOR_BYTES: u64 = 64 << 10;

const fn tcp(name: &'static str, about: &'static str, tcp: Tcp) -> Method {
    Method {
        name,
        about,
        carrier: Carrier::Tcp(tcp),
        congestion: Congestion::Cubic,
        window_ms: 0,
    }
}

const fn quic(name: &'static str, about: &'static str, streams: Streams) -> Method {
    Method {
        name,
        about,
        carrier: Carrier::Quic(Quic {
            streams,
            is_thin: false,
            window_floor_bytes: None,
        }),
        congestion: Congestion::Cubic,
        window_ms: 0,
    }
}

const fn tuned(
    name: &'static str,
    about: &'static str,
    streams: Streams,
    window_floor_bytes: Option<u64>,
) -> Method {
    Method {
        carrier: Carrier::Quic(Quic {
            streams,
            is_thin: true,
            window_floor_bytes,
        }),
        ..quic(name, about, streams)
    }
}

const TCP_METHOD: Method = tcp("tcp", "TCP, a connection per agent, TCP_NODELAY", PLAIN);
const TLS_METHOD: Method = tcp("tls", "TLS 1.3, a connection per agent, TCP_NODELAY", TLS);
const TLS_SHARED_METHOD: Method = tcp(
    "tls-shared",
    "TLS 1.3, all agents on one connection, TCP_NODELAY",
    TLS_SHARED,
);
const QUIC_2S_T: Method = tuned(
    "quic-2s-t",
    "quic-2s with ACK frequency (10, 25 ms) and short connection ids",
    Streams::PerAgent,
    None,
);

const RELAY: Method = Method {
    name: "relay",
    about: "auster's relay pair as it is: TCP to the relay beside each agent, lanes over QUIC",
    carrier: Carrier::Relay(Relay {
        window_us: 0,
        is_doubled: false,
    }),
    congestion: Congestion::Cubic,
    window_ms: 0,
};

const fn coalescing(name: &'static str, about: &'static str, window_us: u64) -> Method {
    Method {
        name,
        about,
        carrier: Carrier::Relay(Relay {
            window_us,
            is_doubled: false,
        }),
        ..RELAY
    }
}

/// The version of the relays' format on the link. Documents name it, except those of version 1:
/// two bytes before each record, and 16 lanes of each agent.
pub const RELAY_WIRE: u8 = 2;

/// In the order of the tables. `quic-*` are stock quinn but for what is said, and its stream
/// limits.
pub static METHODS: [Method; 32] = [
    TCP_METHOD,
    tcp(
        "tcp-nagle",
        "TCP, a connection per agent, Nagle's algorithm on",
        Tcp {
            nodelay: false,
            ..PLAIN
        },
    ),
    TCP_METHOD.bbr("tcp-bbr", "tcp with BBR in place of CUBIC"),
    tcp(
        "tcp-rto5",
        "tcp with tcp_rto_min_us = 5000 in place of 200000",
        Tcp {
            rto_min_us: Some(5000),
            ..PLAIN
        },
    ),
    TLS_METHOD,
    tcp(
        "tls-nagle",
        "TLS 1.3, a connection per agent, Nagle's algorithm on",
        Tcp {
            nodelay: false,
            ..TLS
        },
    ),
    tcp(
        "tls-rto5",
        "tls with tcp_rto_min_us = 5000 in place of 200000",
        Tcp {
            rto_min_us: Some(5000),
            ..TLS
        },
    ),
    TLS_METHOD.window("tls-1ms", "tls, messages of 1 ms written together", 1),
    TLS_METHOD.window("tls-5ms", "tls, messages of 5 ms written together", 5),
    TLS_SHARED_METHOD,
    TLS_SHARED_METHOD.window(
        "tls-shared-1ms",
        "tls-shared, messages of 1 ms written together",
        1,
    ),
    TLS_SHARED_METHOD.window(
        "tls-shared-5ms",
        "tls-shared, messages of 5 ms written together",
        5,
    ),
    quic(
        "quic-2s",
        "QUIC, one connection, a stream per agent (two with two agents)",
        Streams::PerAgent,
    ),
    quic(
        "quic-16s",
        "QUIC, one connection, 16 streams in turn",
        Streams::RoundRobin(16),
    ),
    quic(
        "quic-msg",
        "QUIC, one connection, a stream per message",
        Streams::PerMessage,
    ),
    quic("", "", Streams::PerAgent).bbr("quic-2s-bbr", "quic-2s with quinn's BBR"),
    quic("", "", Streams::RoundRobin(16)).bbr("quic-16s-bbr", "quic-16s with quinn's BBR"),
    quic("", "", Streams::PerMessage).bbr("quic-msg-bbr", "quic-msg with quinn's BBR"),
    QUIC_2S_T,
    QUIC_2S_T.window(
        "quic-2s-t-1ms",
        "quic-2s-t, messages of 1 ms written together",
        1,
    ),
    QUIC_2S_T.window(
        "quic-2s-t-5ms",
        "quic-2s-t, messages of 5 ms written together",
        5,
    ),
    tuned(
        "quic-16s-t",
        "quic-16s with ACK frequency and short connection ids",
        Streams::RoundRobin(16),
        None,
    ),
    tuned(
        "quic-msg-t",
        "quic-msg with ACK frequency and short connection ids",
        Streams::PerMessage,
        None,
    ),
    tuned(
        "quic-2s-floor",
        "quic-2s-t with a congestion window of at least 64 KiB",
        Streams::PerAgent,
        Some(FLOOR_BYTES),
    ),
    tuned(
        "quic-16s-floor",
        "quic-16s-t with a congestion window of at least 64 KiB",
        Streams::RoundRobin(16),
        Some(FLOOR_BYTES),
    ),
    tuned(
        "quic-msg-floor",
        "quic-msg-t with a congestion window of at least 64 KiB",
        Streams::PerMessage,
        Some(FLOOR_BYTES),
    ),
    RELAY,
    coalescing("relay-1ms", "relay with --coalesce 1ms", 1000),
    coalescing(
        "relay-1.2ms",
        "relay with --coalesce 1200us, for less than 1 ms in the mean",
        1200,
    ),
    coalescing("relay-1.3ms", "relay with --coalesce 1300us", 1300),
    coalescing("relay-5ms", "relay with --coalesce 5ms", 5000),
    Method {
        name: "relay-dup",
        about: "relay with --duplicate packet: each message again by datagram, 2 ms later",
        carrier: Carrier::Relay(Relay {
            window_us: 0,
            is_doubled: true,
        }),
        ..RELAY
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_found_by_its_own_name() {
        for method in &METHODS {
            assert_eq!(Method::parse(method.name), Ok(method));
            assert!(!method.about.is_empty(), "{}", method.name);
        }
        assert!(Method::parse("sctp").unwrap_err().contains("tcp-nagle"));
    }

    #[test]
    fn only_what_is_not_shared_has_a_connection_per_agent() {
        let connections = |name| Method::parse(name).unwrap().connections(4);
        assert_eq!(
            ["tcp", "tls-5ms", "tls-shared", "quic-msg", "relay"].map(connections),
            [4, 4, 1, 1, 1]
        );
    }
}
