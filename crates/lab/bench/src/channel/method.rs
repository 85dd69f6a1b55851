//! The methods to carry messages.

/// A method to carry the messages of all agents between the two ends.
#[derive(Debug, PartialEq)]
pub struct Method {
    pub name: &'static str,
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
    /// `--coalesce packet=…`; 0 for none.
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

    const fn window(mut self, name: &'static str, window_ms: u64) -> Method {
        (self.name, self.window_ms) = (name, window_ms);
        self
    }

    const fn bbr(mut self, name: &'static str) -> Method {
        (self.name, self.congestion) = (name, Congestion::Bbr);
        self
    }
}

impl Tcp {
    const fn nagle(mut self) -> Tcp {
        self.nodelay = false;
        self
    }

    const fn rto_min(mut self, us: u32) -> Tcp {
        self.rto_min_us = Some(us);
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

const fn over(name: &'static str, carrier: Carrier) -> Method {
    Method {
        name,
        carrier,
        congestion: Congestion::Cubic,
        window_ms: 0,
    }
}

const fn tcp(name: &'static str, tcp: Tcp) -> Method {
    over(name, Carrier::Tcp(tcp))
}

const fn quic(name: &'static str, streams: Streams) -> Method {
    let quic = Quic {
        streams,
        is_thin: false,
        window_floor_bytes: None,
    };
    over(name, Carrier::Quic(quic))
}

const fn tuned(name: &'static str, streams: Streams, window_floor_bytes: Option<u64>) -> Method {
    let quic = Quic {
        streams,
        is_thin: true,
        window_floor_bytes,
    };
    over(name, Carrier::Quic(quic))
}

const fn relay(name: &'static str, window_us: u64, is_doubled: bool) -> Method {
    let relay = Relay {
        window_us,
        is_doubled,
    };
    over(name, Carrier::Relay(relay))
}

const TCP_METHOD: Method = tcp("tcp", PLAIN);
const TLS_METHOD: Method = tcp("tls", TLS);
const TLS_SHARED_METHOD: Method = tcp("tls-shared", TLS_SHARED);
const QUIC_2S_T: Method = tuned("quic-2s-t", Streams::PerAgent, None);

/// The version of the relays' format on the link. Documents name it, except those of version 1:
/// two bytes before each record, and 16 lanes of each agent.
pub const RELAY_WIRE: u8 = 2;

/// All methods; docs/lab-channel.md describes them. `quic-*` are stock quinn, except for stream
/// limits and the settings in their names.
pub static METHODS: [Method; 32] = [
    TCP_METHOD,
    tcp("tcp-nagle", PLAIN.nagle()),
    TCP_METHOD.bbr("tcp-bbr"),
    tcp("tcp-rto5", PLAIN.rto_min(5000)),
    TLS_METHOD,
    tcp("tls-nagle", TLS.nagle()),
    tcp("tls-rto5", TLS.rto_min(5000)),
    TLS_METHOD.window("tls-1ms", 1),
    TLS_METHOD.window("tls-5ms", 5),
    TLS_SHARED_METHOD,
    TLS_SHARED_METHOD.window("tls-shared-1ms", 1),
    TLS_SHARED_METHOD.window("tls-shared-5ms", 5),
    quic("quic-2s", Streams::PerAgent),
    quic("quic-16s", Streams::RoundRobin(16)),
    quic("quic-msg", Streams::PerMessage),
    quic("", Streams::PerAgent).bbr("quic-2s-bbr"),
    quic("", Streams::RoundRobin(16)).bbr("quic-16s-bbr"),
    quic("", Streams::PerMessage).bbr("quic-msg-bbr"),
    QUIC_2S_T,
    QUIC_2S_T.window("quic-2s-t-1ms", 1),
    QUIC_2S_T.window("quic-2s-t-5ms", 5),
    tuned("quic-16s-t", Streams::RoundRobin(16), None),
    tuned("quic-msg-t", Streams::PerMessage, None),
    tuned("quic-2s-floor", Streams::PerAgent, Some(FLOOR_BYTES)),
    tuned("quic-16s-floor", Streams::RoundRobin(16), Some(FLOOR_BYTES)),
    tuned("quic-msg-floor", Streams::PerMessage, Some(FLOOR_BYTES)),
    relay("relay", 0, false),
    relay("relay-1ms", 1000, false),
    relay("relay-1.2ms", 1200, false),
    relay("relay-1.3ms", 1300, false),
    relay("relay-5ms", 5000, false),
    relay("relay-dup", 0, true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_found_by_its_own_name() {
        for method in &METHODS {
            assert_eq!(Method::parse(method.name), Ok(method));
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
