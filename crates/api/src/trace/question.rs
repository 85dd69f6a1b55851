//! The parameters of a trace, read from a query string.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use axum::http::StatusCode;
use control::controller::trace::{Name, Question, Wrong};
use control::trace::probe::Probe;
use control::vlan::VlanId;
use openflow::MacAddr;

use super::super::problem::{FieldError, Problem};
use config::topology::edge_port;

const NAMES: [&str; 11] = [
    "src", "dst", "proto", "sport", "dport", "vlan", "dscp", "src_mac", "dst_mac", "in", "seconds",
];
/// The time between two readings of the counters.
const SECONDS: u64 = 2;
pub const SECONDS_MAX: u64 = 10;
const QUERY_BYTES_MAX: usize = 2048;
const PROTOS: [(&str, u8); 4] = [("tcp", 6), ("udp", 17), ("icmp", 1), ("sctp", 132)];
const HAS_PORTS: [u8; 3] = [6, 17, 132];

/// A packet to follow, and the time between the readings; zero for one reading.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub question: Question,
    pub wait: Duration,
}

/// Makes a problem of all mistakes in a question.
pub fn problem(wrong: Vec<Wrong>) -> Problem {
    let error = |wrong: Wrong| FieldError {
        pointer: format!("/{}", wrong.field),
        detail: format!("{}: {}", wrong.field, wrong.text),
    };
    let detail = match wrong.len() {
        1 => "one parameter is wrong".to_owned(),
        count => format!("{count} parameters are wrong"),
    };
    Problem {
        errors: wrong.into_iter().map(error).collect(),
        ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
}

struct Reader {
    pairs: Vec<(String, String)>,
    wrong: Vec<Wrong>,
}

/// Reads a query string.
///
/// # Errors
/// One problem with all mistakes.
pub fn read(query: &str) -> Result<Asked, Problem> {
    if query.len() > QUERY_BYTES_MAX {
        let detail = format!("the query has more than {QUERY_BYTES_MAX} bytes");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, detail));
    }
    let mut reader = Reader::of(query);
    let (src, dst) = (reader.host("src"), reader.host("dst"));
    let proto = reader.with("proto", proto);
    let sport = reader.number("sport", 0, u16::MAX.into(), "5060");
    let dport = reader.number("dport", 0, u16::MAX.into(), "5060");
    let has_ports = proto.is_none_or(|proto| HAS_PORTS.contains(&proto));
    for (field, port) in [("sport", sport), ("dport", dport)] {
        if port.is_some() && !has_ports {
            reader.fail(field, "only tcp, udp and sctp have ports");
        }
    }
    let vlan = reader.number("vlan", 1, 4094, "10");
    let dscp = reader.number("dscp", 0, 63, "46");
    let mac = |text: &str| {
        let mac = text.parse::<MacAddr>();
        mac.map_err(|_| format!("'{text}' is no Ethernet address such as 02:00:00:00:00:01"))
    };
    let (src_mac, dst_mac) = (reader.with("src_mac", mac), reader.with("dst_mac", mac));
    let at = reader.with("in", edge_port);
    let seconds = reader.number("seconds", 0, SECONDS_MAX, "2");
    if let (Some(Name::Ip(src)), Some(Name::Ip(dst))) = (src, dst)
        && src.is_ipv4() != dst.is_ipv4()
    {
        reader.fail("dst", "it must be of the same version of IP as src");
    }
    let (Some(src), Some(dst), true) = (src, dst, reader.wrong.is_empty()) else {
        return Err(problem(reader.wrong));
    };
    let port = |port: Option<u64>, default| port.map_or(default, |port| port as u16);
    Ok(Asked {
        question: Question {
            src,
            dst,
            vlan: vlan.and_then(|vlan| VlanId::new(vlan as u16)),
            src_mac,
            dst_mac,
            at,
            probe: Probe {
                proto,
                src_port: port(sport, 40_000),
                dst_port: port(dport, 9),
                dscp: dscp.map_or(0, |dscp| dscp as u8),
            },
        },
        wait: Duration::from_secs(seconds.unwrap_or(SECONDS)),
    })
}

impl Reader {
    fn of(query: &str) -> Reader {
        let mut reader = Reader {
            pairs: Vec::new(),
            wrong: Vec::new(),
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(known) = NAMES.iter().find(|known| **known == name) else {
                let names = NAMES.join(", ");
                let shown: String = name.chars().take(40).collect();
                reader.fail("", format!("'{shown}' is none of {names}"));
                continue;
            };
            match decoded(value) {
                _ if reader.pairs.iter().any(|(other, _)| other == name) => {
                    reader.fail(known, "it is stated twice");
                }
                Some(value) => reader.pairs.push((name.to_owned(), value)),
                None => reader.fail(known, "it is no text in percent-encoding"),
            }
        }
        reader
    }

    fn fail(&mut self, field: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.wrong.push(Wrong { field, text });
    }

    /// Returns the value of a parameter, if it is present and valid.
    fn with<T, E: Display>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let at = self.pairs.iter().position(|(name, _)| name == field)?;
        match read(&self.pairs[at].1) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.fail(field, problem.to_string());
                None
            }
        }
    }

    fn number(&mut self, field: &'static str, min: u64, max: u64, example: &str) -> Option<u64> {
        self.with(field, |text| {
            let number = text.parse().ok().filter(|it| (min..=max).contains(it));
            number.ok_or_else(|| {
                format!("'{text}' is no number from {min} to {max} such as {example}")
            })
        })
    }

    fn host(&mut self, field: &'static str) -> Option<Name> {
        if !self.pairs.iter().any(|(name, _)| name == field) {
            if !self.wrong.iter().any(|wrong| wrong.field == field) {
                self.fail(field, "it is missing: an IP or an Ethernet address");
            }
            return None;
        }
        self.with(field, |text| {
            let mac = MacAddr::from_str(text).map(Name::Mac).ok();
            let ip = || IpAddr::from_str(text).map(Name::Ip).ok();
            let host = mac.or_else(ip).ok_or_else(|| {
                format!("'{text}' is no address of a host such as 10.0.0.1 or 02:00:00:00:00:01")
            })?;
            let is_one = match host {
                Name::Ip(ip) => openflow::packet::ip::is_host(ip),
                Name::Mac(mac) => !mac.is_multicast(),
            };
            match is_one || field == "dst" {
                true => Ok(host),
                false => Err(format!("'{text}' is not the address of one host")),
            }
        })
    }
}

fn proto(text: &str) -> Result<u8, String> {
    let named = PROTOS.iter().find(|(name, _)| *name == text);
    let number = || text.parse().ok();
    named
        .map(|(_, number)| *number)
        .or_else(number)
        .ok_or_else(|| {
            format!("'{text}' is none of tcp, udp, icmp, sctp, nor a number from 0 to 255")
        })
}

/// Decodes the percent-encoding of a value; `None` if the encoding is invalid, or the result is not
/// text.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [a, b, tail @ ..]) => {
                let digits = [*a, *b];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = tail;
            }
            (b'%', _) => return None,
            (other, tail) => {
                bytes.push(*other);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(query: &str) -> Vec<String> {
        let problem = read(query).expect_err("it is wrong");
        assert_eq!(problem.status, 422, "{query}");
        problem
            .errors
            .into_iter()
            .map(|error| error.pointer)
            .collect()
    }

    #[test]
    fn a_question_is_read_with_its_encoding() {
        let asked = read("src=10.0.0.1&dst=10.0.0.2&proto=tcp&dport=23&in=1%3A2&vlan=10&seconds=0");
        let Asked { question, wait } = asked.expect("it is right");
        assert_eq!(question.src, Name::Ip([10, 0, 0, 1].into()));
        assert_eq!(
            (question.probe.proto, question.probe.dst_port),
            (Some(6), 23)
        );
        assert_eq!(
            question.at.map(|at| at.to_string()),
            Some("0000000000000001:2".to_owned())
        );
        assert_eq!(question.vlan.map(VlanId::number), Some(10));
        assert_eq!(wait, Duration::ZERO);
        let asked = read("src=02:00:00:00:00:01&dst=fd00::2").expect("it is right");
        assert_eq!(asked.wait, Duration::from_secs(SECONDS));
    }

    #[test]
    fn all_mistakes_are_reported_at_once_by_parameter() {
        assert_eq!(pointers(""), ["/src", "/dst"]);
        assert_eq!(pointers("src=10.0.0.1&dst=%GG"), ["/dst"]);
        assert_eq!(pointers("src=10.0.0.1&dst=%F"), ["/dst"]);
        assert_eq!(pointers("src=10.0.0.1&dst=fd00::1"), ["/dst"]);
        assert_eq!(pointers("src=224.0.0.1&dst=10.0.0.2"), ["/src"]);
        assert_eq!(pointers("src=10.0.0.1&src=10.0.0.3&dst=10.0.0.2"), ["/src"]);
        assert_eq!(
            pointers("src=10.0.0.1&dst=10.0.0.2&proto=icmp&dport=1"),
            ["/dport"]
        );
        let all = "src=x&dst=y&proto=z&sport=70000&dport=-1&vlan=0&dscp=64&src_mac=1&dst_mac=2&\
                   in=1&seconds=11&other=1";
        let mut wrong = pointers(all);
        wrong.sort();
        let mut expected: Vec<String> = NAMES.iter().map(|name| format!("/{name}")).collect();
        expected.push("/".to_owned());
        expected.sort();
        assert_eq!(wrong, expected);
        assert!(read(&"a".repeat(3000)).is_err_and(|problem| problem.status == 414));
    }
}
