//! The switches and ports that an administrator is about to take out: `drain = ["0x3", "0x1:2"]`,
//! and the time that paths over them may wait for a pause: `drain_wait_s = 3`.

use clock::Duration;
use control::controller::{Drained, Location};
use openflow::{DatapathId, PortNo};
use toml::de::DeTable;

use super::fields::Fields;

/// Conversations pause for a second now and then, and an operator who waits for an empty link has
/// some patience.
const WAIT_S: u64 = 3;
const WAIT_S_MAX: u64 = 3600;

enum Target {
    Switch(DatapathId),
    Link(Location),
}

pub fn read(fields: &mut Fields<'_>, root: &DeTable<'_>) -> Drained {
    let wait_s = fields.integer(root, "drain_wait_s", 0..=WAIT_S_MAX);
    let mut drained = Drained {
        wait: Duration::from_secs(wait_s.unwrap_or(WAIT_S)),
        ..Drained::default()
    };
    for named in fields.list(root, "drain", "0x3", parse) {
        match named {
            Target::Switch(dpid) => drop(drained.switches.insert(dpid)),
            Target::Link(at) => drop(drained.links.insert(at)),
        }
    }
    drained
}

/// A switch, or a link by a port at either end.
fn parse(text: &str) -> Result<Target, String> {
    if let Ok(dpid) = text.parse() {
        return Ok(Target::Switch(dpid));
    }
    let link = text.rsplit_once(':').and_then(|(dpid, port)| {
        let (dpid, port) = (dpid.parse().ok()?, PortNo(port.parse().ok()?));
        port.is_ordinary().then_some(Location { dpid, port })
    });
    link.map(Target::Link).ok_or_else(|| {
        format!("'{text}' is neither a switch, such as 0x3, nor a link by its port, such as 0x1:2")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn drained(text: &str) -> Result<Drained, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let drained = read(&mut fields, &root);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| drained)
    }

    #[test]
    fn switches_and_links_are_told_apart() {
        let text = r#"drain = ["0x3", "0x1:2", "00:00:00:00:00:00:00:04", "0000000000000005:6"]"#;
        let link = |dpid, port| Location::new(DatapathId(dpid), PortNo(port));
        let expected = Drained {
            switches: [DatapathId(3), DatapathId(4)].into(),
            links: [link(1, 2), link(5, 6)].into(),
            wait: Duration::from_secs(WAIT_S),
        };
        assert_eq!(drained(text), Ok(expected));
        let waits = |text| drained(text).unwrap().wait;
        assert_eq!(waits(""), Duration::from_secs(WAIT_S));
        assert_eq!(waits("drain_wait_s = 0"), Duration::ZERO);
        let problems = drained("drain_wait_s = -1").unwrap_err();
        assert!(problems[0].contains("drain_wait_s"), "{problems:?}");
    }

    #[test]
    fn every_mistake_is_named() {
        let problems = drained(r#"drain = ["s3", "0x1:", "0x1:0"]"#).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, wrong) in problems.iter().zip(["'s3'", "'0x1:'", "'0x1:0'"]) {
            let right = problem.contains(wrong) && problem.contains("0x1:2");
            assert!(right, "{problem}");
        }
    }
}
