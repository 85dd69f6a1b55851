//! Methods of agents that speak UDP: `udp:HOST:PORT` sends there, `pudp:PORT[:HOST]` receives.
//! They are not a [`super::Method`]: nothing that asks for a connection could use one.

use std::fmt;

use super::{Host, MethodError, parse_host, parse_port, split_active, split_passive};

/// The destination or the source of datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UdpMethod {
    pub is_passive: bool,
    pub host: Host,
    pub port: u16,
}

impl UdpMethod {
    /// `None` when `text` is of another kind of method.
    pub fn parse(text: &str) -> Option<Result<UdpMethod, MethodError>> {
        let (scheme, rest) = text.split_once(':')?;
        let method = match scheme {
            "udp" => active(rest),
            "pudp" => passive(rest),
            _ => return None,
        };
        Some(method.map_err(|problem| MethodError {
            given: text.to_owned(),
            problem,
        }))
    }

    /// Whether plain bytes leave this machine, or may arrive from outside it.
    pub fn is_exposed(&self) -> bool {
        !self.host.is_loopback()
    }
}

impl fmt::Display for UdpMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UdpMethod { host, port, .. } = self;
        match self.is_passive {
            true => write!(f, "pudp:{port}:{host}"),
            false => write!(f, "udp:{host}:{port}"),
        }
    }
}

// No protocol over UDP is known here, so there is no default port.
fn active(rest: &str) -> Result<UdpMethod, String> {
    let (host, port) = split_active("udp", rest)?;
    let port = port.ok_or("the port is missing: udp:HOST:PORT")?;
    Ok(UdpMethod {
        is_passive: false,
        host: parse_host(host)?,
        port: parse_port(port, false)?,
    })
}

fn passive(rest: &str) -> Result<UdpMethod, String> {
    let (port, host) = split_passive("pudp", rest)?;
    let port = port.ok_or("the port is missing: pudp:PORT[:HOST]")?;
    Ok(UdpMethod {
        is_passive: true,
        host: host.map_or(Ok(Host::ANY), parse_host)?,
        port: parse_port(port, true)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_written_as_they_are_read_and_need_a_port() {
        for text in ["udp:192.0.2.1:161", "udp:[::1]:514", "pudp:1161:127.0.0.1"] {
            let method = UdpMethod::parse(text).unwrap().unwrap();
            assert_eq!(method.to_string(), text);
        }
        assert_eq!(UdpMethod::parse("tcp:127.0.0.1:161"), None);
        let any = UdpMethod::parse("pudp:0").unwrap().unwrap();
        assert!(any.is_exposed() && any.is_passive);
        for (wrong, problem) in [
            (
                "udp:127.0.0.1",
                "'udp:127.0.0.1': the port is missing: udp:",
            ),
            ("udp:h:0", "port '0' is not a number from 1"),
            ("pudp:", "the port is missing: pudp:PORT"),
            ("pudp:127.0.0.1:161", "the port comes before the host"),
            ("pudp:161:10.0.0.256", "neither an address nor a host name"),
        ] {
            let error = UdpMethod::parse(wrong).unwrap().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
