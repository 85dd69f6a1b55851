//! Connection methods in Open vSwitch's grammar (`vconn-active`, `vconn-passive` in its manual):
//! `tcp:HOST[:PORT]`, `ssl:`, `unix:FILE` dial; `ptcp:[PORT][:HOST]`, `pssl:`, `punix:FILE` listen.
//! `quic:` and `pquic:` extend it and follow the same rules, over UDP.
//!
//! The defaults are Open vSwitch's too: a passive method without HOST binds every IPv4 address, and
//! port 0 asks the system for a free one.

mod udp;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::str::FromStr;

pub use udp::UdpMethod;

/// The address to dial, or to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Dial(Transport, Host, u16),
    Listen(Transport, Host, u16),
    DialUnix(PathBuf),
    ListenUnix(PathBuf),
}

/// The protocol that carries the bytes between two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    Tcp,
    Tls,
    Quic,
}

/// An address or a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    V4(Ipv4Addr),
    /// A link-local address needs the device it is reached by: `[fe80::1%eth0]`.
    V6 {
        address: Ipv6Addr,
        device: Option<String>,
    },
    Name(String),
}

/// The protocol spoken over the connection. It decides the port when none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    OpenFlow,
    Ovsdb,
}

impl Protocol {
    /// The port registered with IANA.
    pub fn port(self) -> u16 {
        match self {
            Protocol::OpenFlow => 6653,
            Protocol::Ovsdb => 6640,
        }
    }
}

/// The mistake in a method, and the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}': {problem}")]
pub struct MethodError {
    given: String,
    problem: String,
}

impl Method {
    /// Reads a method; `protocol` gives the port where the text has none.
    pub fn parse(text: &str, protocol: Protocol) -> Result<Method, MethodError> {
        parse(text, protocol.port()).map_err(|problem| MethodError {
            given: text.to_owned(),
            problem,
        })
    }

    /// Whether the method listens, and so is for `--listen`; other methods dial.
    pub fn is_passive(&self) -> bool {
        matches!(self, Method::Listen(..) | Method::ListenUnix(_))
    }

    /// Whether the method needs certificates: `ssl:`, `quic:` and their passive forms.
    pub fn is_secure(&self) -> bool {
        matches!(
            self,
            Method::Dial(Transport::Tls | Transport::Quic, ..)
                | Method::Listen(Transport::Tls | Transport::Quic, ..)
        )
    }

    /// Whether plain bytes leave this machine, or may arrive from outside it.
    pub fn is_exposed(&self) -> bool {
        match self {
            Method::Dial(Transport::Tcp, host, _) | Method::Listen(Transport::Tcp, host, _) => {
                !host.is_loopback()
            }
            _ => false,
        }
    }

    /// The method that dials this one; `None` if the host is every address, and for Unix sockets
    /// of this machine.
    pub fn dialled(&self) -> Option<Method> {
        let is_any = |host: &Host| match host {
            Host::V4(address) => address.is_unspecified(),
            Host::V6 { address, .. } => address.is_unspecified(),
            Host::Name(_) => false,
        };
        match self {
            Method::Listen(transport, host, port) if !is_any(host) => {
                Some(Method::Dial(*transport, host.clone(), *port))
            }
            _ => None,
        }
    }

    /// The same method on another port: a listener on port 0 reports this form.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Method {
        match self.clone() {
            Method::Dial(transport, host, _) => Method::Dial(transport, host, port),
            Method::Listen(transport, host, _) => Method::Listen(transport, host, port),
            unix => unix,
        }
    }
}

impl FromStr for Method {
    type Err = MethodError;

    /// Reads an OpenFlow method: port 6653 where none is given.
    fn from_str(text: &str) -> Result<Method, MethodError> {
        Method::parse(text, Protocol::OpenFlow)
    }
}

impl fmt::Display for Method {
    /// Writes the canonical form, which always has the port, and the host of a passive method.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Dial(transport, host, port) => write!(f, "{transport}:{host}:{port}"),
            Method::Listen(transport, host, port) => write!(f, "p{transport}:{port}:{host}"),
            Method::DialUnix(path) => write!(f, "unix:{}", path.display()),
            Method::ListenUnix(path) => write!(f, "punix:{}", path.display()),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Tls => "ssl",
            Transport::Quic => "quic",
        })
    }
}

impl Host {
    /// Every IPv4 address of this machine.
    pub const ANY: Host = Host::V4(Ipv4Addr::UNSPECIFIED);

    pub fn is_loopback(&self) -> bool {
        match self {
            Host::V4(address) => address.is_loopback(),
            Host::V6 { address, .. } => address.is_loopback(),
            Host::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }

    /// The address, unless this is a name to look up. A device that does not exist is an error.
    pub fn socket_address(&self, port: u16) -> std::io::Result<Option<SocketAddr>> {
        match self {
            Host::V4(address) => Ok(Some(SocketAddr::new(IpAddr::V4(*address), port))),
            Host::V6 { address, device } => {
                let scope_id = device.as_deref().map_or(Ok(0), device_index)?;
                let address = SocketAddrV6::new(*address, port, 0, scope_id);
                Ok(Some(SocketAddr::V6(address)))
            }
            Host::Name(_) => Ok(None),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::V4(address) => address.fmt(f),
            Host::V6 {
                address,
                device: None,
            } => write!(f, "[{address}]"),
            Host::V6 {
                address,
                device: Some(device),
            } => write!(f, "[{address}%{device}]"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

fn device_index(device: &str) -> std::io::Result<u32> {
    match device.parse() {
        Ok(index) => Ok(index),
        Err(_) => nix::net::if_::if_nametoindex(device).map_err(std::io::Error::from),
    }
}

fn parse(text: &str, port_default: u16) -> Result<Method, String> {
    const METHODS: &str =
        "tcp:, ssl:, quic: or unix: to dial, ptcp:, pssl:, pquic: or punix: to listen";
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err(format!("a method starts with {METHODS}"));
    };
    let (passive, transport) = match scheme {
        "tcp" => (false, Transport::Tcp),
        "ssl" => (false, Transport::Tls),
        "quic" => (false, Transport::Quic),
        "ptcp" => (true, Transport::Tcp),
        "pssl" => (true, Transport::Tls),
        "pquic" => (true, Transport::Quic),
        "unix" => return Ok(Method::DialUnix(parse_path(scheme, rest)?)),
        "punix" => return Ok(Method::ListenUnix(parse_path(scheme, rest)?)),
        other => {
            return Err(format!("'{other}:' is no connection method; use {METHODS}"));
        }
    };
    if passive {
        let (port, host) = split_passive(scheme, rest)?;
        let port = port.map_or(Ok(port_default), |port| parse_port(port, true))?;
        let host = host.map_or(Ok(Host::ANY), parse_host)?;
        Ok(Method::Listen(transport, host, port))
    } else {
        let (host, port) = split_active(scheme, rest)?;
        let port = port.map_or(Ok(port_default), |port| parse_port(port, false))?;
        Ok(Method::Dial(transport, parse_host(host)?, port))
    }
}

fn parse_path(scheme: &str, path: &str) -> Result<PathBuf, String> {
    /// `sun_path` less its final NUL.
    const PATH_LEN_MAX: usize = 107;
    if path.is_empty() {
        return Err(format!("the file is missing: {scheme}:FILE"));
    }
    if path.contains('\0') {
        return Err("a file name has no NUL".to_owned());
    }
    if path.len() > PATH_LEN_MAX {
        return Err(format!(
            "the file name has {} bytes, a Unix socket's at most {PATH_LEN_MAX}",
            path.len()
        ));
    }
    Ok(PathBuf::from(path))
}

/// `HOST[:PORT]`.
fn split_active<'a>(scheme: &str, rest: &'a str) -> Result<(&'a str, Option<&'a str>), String> {
    if rest.is_empty() {
        return Err(format!("the host is missing: {scheme}:HOST[:PORT]"));
    }
    if rest.starts_with('[') {
        let close = rest.find(']').ok_or("the host's '[' has no ']'")?;
        let (host, tail) = rest.split_at(close + 1);
        return match tail.strip_prefix(':') {
            None if tail.is_empty() => Ok((host, None)),
            Some(port) => Ok((host, Some(port))),
            None => Err(format!("after the host comes ':PORT', not '{tail}'")),
        };
    }
    match rest.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(format!(
            "an IPv6 address stands in brackets: {scheme}:[ADDRESS]:PORT"
        )),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((rest, None)),
    }
}

/// `[PORT][:HOST]`.
fn split_passive<'a>(
    scheme: &str,
    rest: &'a str,
) -> Result<(Option<&'a str>, Option<&'a str>), String> {
    let (port, host) = match rest.split_once(':') {
        Some((port, host)) => (port, Some(host)),
        None => (rest, None),
    };
    if !port.is_empty() && !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "the port comes before the host: {scheme}:[PORT][:HOST]"
        ));
    }
    if host == Some("") {
        return Err(format!(
            "the host is missing after ':': {scheme}:PORT:HOST, or {scheme}:PORT for every address"
        ));
    }
    Ok(((!port.is_empty()).then_some(port), host))
}

fn parse_port(port: &str, zero_allowed: bool) -> Result<u16, String> {
    let least = u16::from(!zero_allowed);
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number >= least => Ok(number),
        _ => Err(format!(
            "port '{port}' is not a number from {least} to 65535"
        )),
    }
}

fn parse_host(host: &str) -> Result<Host, String> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or("the host's '[' has no ']'")?;
        let (address, device) = match inner.split_once('%') {
            Some((address, device)) => (address, Some(device)),
            None => (inner, None),
        };
        let address = address
            .parse()
            .map_err(|_| format!("'{address}' is not an IPv6 address"))?;
        let named = |d: &str| !d.is_empty() && d.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
        if device.is_some_and(|device| !named(device)) {
            return Err("after '%' comes the device's name".to_owned());
        }
        let device = device.map(str::to_owned);
        return Ok(Host::V6 { address, device });
    }
    if host.contains(':') {
        return Err(format!("an IPv6 address stands in brackets: [{host}]"));
    }
    if let Ok(address) = host.parse() {
        return Ok(Host::V4(address));
    }
    let is_name = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let labels = host.strip_suffix('.').unwrap_or(host);
    // A name whose last label is digits would be an invalid address, such as 10.0.0.256.
    let numeric_tail = labels
        .rsplit('.')
        .next()
        .is_some_and(|tail| tail.bytes().all(|b| b.is_ascii_digit()));
    if host.len() > 253 || numeric_tail || !labels.split('.').all(is_name) {
        return Err(format!("'{host}' is neither an address nor a host name"));
    }
    Ok(Host::Name(host.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Method>().expect(text).to_string()
    }

    #[test]
    fn what_open_vswitch_takes_is_taken() {
        for (text, whole) in [
            ("tcp:127.0.0.1", "tcp:127.0.0.1:6653"),
            ("tcp:127.0.0.1:6633", "tcp:127.0.0.1:6633"),
            ("ssl:[::1]:6634", "ssl:[::1]:6634"),
            ("ssl:[fe80::1%eth0]", "ssl:[fe80::1%eth0]:6653"),
            ("quic:controller.example", "quic:controller.example:6653"),
            ("ptcp:", "ptcp:6653:0.0.0.0"),
            ("ptcp:6633", "ptcp:6633:0.0.0.0"),
            ("ptcp::127.0.0.1", "ptcp:6653:127.0.0.1"),
            ("pssl:0:[::]", "pssl:0:[::]"),
            ("pquic:6653:localhost", "pquic:6653:localhost"),
            ("unix:/run/br0.mgmt", "unix:/run/br0.mgmt"),
            ("punix:a:b", "punix:a:b"),
        ] {
            assert_eq!(canonical(text), whole);
            assert_eq!(canonical(whole), whole);
        }
        let ovsdb = Method::parse("ssl:db", Protocol::Ovsdb).unwrap();
        assert_eq!(ovsdb.to_string(), "ssl:db:6640");
    }

    #[test]
    fn a_bad_method_is_told_by_its_bad_part() {
        for (text, problem) in [
            ("127.0.0.1", "starts with tcp:"),
            ("", "starts with tcp:"),
            ("udp:1.2.3.4", "'udp:' is no connection method"),
            ("tcp:", "the host is missing: tcp:HOST[:PORT]"),
            ("tcp:h:0", "port '0' is not a number from 1 to 65535"),
            ("tcp:h:65536", "port '65536'"),
            ("tcp:h:+1", "port '+1'"),
            ("tcp:h:", "port ''"),
            ("tcp:::1", "stands in brackets: tcp:[ADDRESS]:PORT"),
            ("tcp:[::1", "'[' has no ']'"),
            ("tcp:[::g]", "'::g' is not an IPv6 address"),
            ("tcp:[::1]6653", "after the host comes ':PORT', not '6653'"),
            ("tcp:[fe80::1%]", "device's name"),
            ("tcp:10.0.0.256", "neither an address nor a host name"),
            ("tcp:a b", "neither an address nor a host name"),
            ("ptcp:127.0.0.1", "the port comes before the host"),
            ("ptcp:localhost:6653", "the port comes before the host"),
            ("ptcp:6653:", "the host is missing after ':'"),
            ("ptcp:6653:::1", "stands in brackets: [::1]"),
            ("unix:", "the file is missing: unix:FILE"),
        ] {
            let error = text.parse::<Method>().expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
            assert!(error.contains(&format!("'{text}'")), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn only_plain_bytes_beyond_loopback_are_exposed() {
        let exposed = |text: &str| text.parse::<Method>().unwrap().is_exposed();
        assert!(exposed("ptcp:6653"));
        assert!(exposed("ptcp:6653:10.0.0.1"));
        assert!(exposed("tcp:[fd00::1]"));
        assert!(!exposed("ptcp:6653:127.0.0.1"));
        assert!(!exposed("tcp:[::1]"));
        assert!(!exposed("tcp:localhost"));
        assert!(!exposed("pssl:6653"));
        assert!(!exposed("punix:x"));
    }

    fn host() -> impl Strategy<Value = Host> {
        prop_oneof![
            any::<Ipv4Addr>().prop_map(Host::V4),
            (
                any::<Ipv6Addr>(),
                proptest::option::of("[a-z][a-z0-9.-]{0,14}")
            )
                .prop_map(|(address, device)| Host::V6 { address, device }),
            "[a-z][a-z0-9-]{0,20}(\\.[a-z][a-z0-9-]{0,20}){0,3}".prop_map(Host::Name),
        ]
    }

    fn method() -> impl Strategy<Value = Method> {
        let transport = || {
            prop_oneof![
                Just(Transport::Tcp),
                Just(Transport::Tls),
                Just(Transport::Quic)
            ]
        };
        prop_oneof![
            (transport(), host(), 1u16..).prop_map(|(t, h, p)| Method::Dial(t, h, p)),
            (transport(), host(), 0u16..).prop_map(|(t, h, p)| Method::Listen(t, h, p)),
            "[!-~]{1,100}".prop_map(|path| Method::DialUnix(path.into())),
            "[!-~]{1,100}".prop_map(|path| Method::ListenUnix(path.into())),
        ]
    }

    proptest! {
        #[test]
        fn every_method_reads_back_as_itself(method in method()) {
            prop_assert_eq!(method.to_string().parse::<Method>(), Ok(method));
        }

        #[test]
        fn no_text_panics_and_what_is_taken_is_canonical(text in "[a-z]{0,6}:?\\PC{0,40}") {
            if let Ok(method) = text.parse::<Method>() {
                prop_assert_eq!(method.to_string().parse::<Method>(), Ok(method));
            }
        }

        #[test]
        fn near_methods_do_not_panic(text in "p?(tcp|ssl|quic|unix):[0-9a-f:.%\\[\\]]{0,24}") {
            if let Ok(method) = text.parse::<Method>() {
                prop_assert_eq!(method.to_string().parse::<Method>(), Ok(method));
            }
        }
    }
}
