//! Entries of switches as `ovs-ofctl dump-flows --no-stats` prints them, read from outside.

use control::qos::flow::Flow;
use openflow::Cookie;

/// Whether it is of a policy or a circuit.
pub fn is_of_qos(line: &str) -> bool {
    Flow::is_its(cookie(line))
}

/// 0 is not printed.
pub fn cookie(line: &str) -> Cookie {
    let (_, rest) = line.split_once("cookie=0x").unwrap_or_default();
    let digits = rest.split([',', ' ']).next().unwrap_or_default();
    Cookie(u64::from_str_radix(digits, 16).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_known_by_their_cookies() {
        let line = |cookie: &str| format!("cookie={cookie}, priority=3101,udp actions=output:1");
        let read = cookie(&line("0x61757374c21a1103"));
        assert_eq!(read, Cookie(0x6175_7374_c21a_1103));
        assert_eq!(cookie("table=3, priority=1 actions=drop"), Cookie(0));
        for (text, is_ours) in [
            ("0x61757374c21a1103", true),
            ("0x61757374c21a1000", true),
            ("0x61757374c21a0200", false),
            ("0x1234", false),
            ("0x0", false),
        ] {
            assert_eq!(is_of_qos(&line(text)), is_ours, "{text}");
        }
    }
}
