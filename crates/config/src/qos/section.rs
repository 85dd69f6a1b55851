//! The `[qos]` section of the configuration.
//!
//! ```toml
//! [[qos.port]]
//! at = ["1:2", "2:3"]                  # SWITCH:PORT, one or several
//! rate = "100mbit"
//! queues = [{ number = 1, class = "gold", min = "20mbit", dscp = [46] }]
//!
//! [[qos.service]]
//! name = "voice"
//! proto = "udp"
//! dst_port = 5060
//!
//! [[qos.policy]]
//! name = "voice-first"
//! service = "voice"
//! queue = "gold"
//! ```

use std::path::Path;

use control::qos::check::{Problem, ProblemKind};
use control::qos::{Network, Qos};
use toml::de::DeTable;

use super::locate::{about, locate};
use super::read::{self, Sources};
use super::tree::{Node, Reader, Wrong};
use crate::fields::{Fields, place_of};

/// The pointers to the lists of items.
const KINDS: [&str; 4] = ["/port", "/service", "/policy", "/circuit"];

/// The contents of the section, and their places.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub qos: Qos,
    pub sources: Sources,
    file: String,
    text: String,
}

impl Section {
    /// Reads the section. Mistakes that do not depend on the network go to `fields`.
    pub fn read<'a>(
        fields: &mut Fields<'a>,
        root: &DeTable<'a>,
        text: &str,
        file: &Path,
    ) -> Section {
        let mut section = Section {
            file: file.display().to_string(),
            text: text.to_owned(),
            ..Section::default()
        };
        let (Some(value), Some(table)) = (root.get("qos"), fields.table(root, "qos")) else {
            return section;
        };
        let node = Node::of_toml(table, value.span());
        let mut reader = Reader::default();
        (section.qos, section.sources) = read::section(&mut reader, &node);
        let wrong = reader.problems;
        let problems = section.qos.check(&Network::default()).into_iter();
        for problem in problems.filter(|one| !section.follows(one, &wrong)) {
            let Wrong { place, text } = locate(&section.qos, &problem, &section.sources);
            fields.problem(&place.span, text);
        }
        for Wrong { place, text } in &wrong {
            fields.problem(&place.span, text);
        }
        section
    }

    /// Whether a problem may follow from `wrong` alone: a value that could not be read is missing
    /// in its item, and wherever other items name it.
    fn follows(&self, problem: &Problem, wrong: &[Wrong]) -> bool {
        let is_wrong = |pointer: &str| {
            let below = |one: &Wrong| {
                let rest = one.place.pointer.strip_prefix(pointer);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            wrong.iter().any(below)
        };
        let is_known = |one: &Wrong| {
            let mut kinds = KINDS.iter();
            kinds.any(|kind| one.place.pointer.starts_with(kind))
        };
        let named: &[&str] = match problem.kind {
            ProblemKind::Range | ProblemKind::Own => &[],
            ProblemKind::NoService | ProblemKind::NoPacket => &["/service"],
            ProblemKind::NoQueue => &["/port"],
            ProblemKind::AtOdds => &["/service", "/policy", "/circuit"],
        };
        if named.iter().any(|kind| is_wrong(kind)) || !wrong.iter().all(is_known) {
            return true;
        }
        let item = about(&self.qos, problem).map(|item| self.sources.place(&item).pointer);
        item.is_some_and(|item| problem.kind != ProblemKind::Range && is_wrong(&item))
    }

    /// One line for each problem.
    pub fn tell(&self, wrong: &[Wrong]) -> Vec<String> {
        let told = |Wrong { place, text }: &Wrong| match place.pointer.is_empty() {
            true => format!("{}: {text}", self.file),
            false => format!(
                "{}:{}: {text}",
                self.file,
                place_of(&self.text, &place.span)
            ),
        };
        wrong.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<Section, Vec<String>> {
        let file = PathBuf::from("net.toml");
        let (mut fields, root) = Fields::parse(text);
        let section = Section::read(&mut fields, &root, text, &file);
        let done = fields.finish(file.display()).map_err(without_columns);
        done.map(|()| section)
    }

    #[test]
    fn a_section_is_read_and_one_that_is_not_there_asks_for_nothing() {
        assert_eq!(read("").unwrap().qos, Qos::default());
        let section = read(
            "[[qos.port]]\nat = \"1:2\"\nrate = \"10mbit\"\nqueues = \
             [{ number = 1, class = \"g\" }]\n\
             [[qos.service]]\nname = \"voice\"\n\
             [[qos.policy]]\nname = \"p\"\nservice = \"voice\"\nqueue = \"g\"\n",
        );
        let section = section.unwrap();
        assert_eq!(section.qos.ports.len(), 1);
        let wrong = Wrong {
            place: section.sources.policies["p"]
                .get("queue")
                .unwrap()
                .place
                .clone(),
            text: "queue: no".to_owned(),
        };
        assert_eq!(section.tell(&[wrong]), ["net.toml:10:9: queue: no"]);
    }

    /// Mistakes and doubtful settings are both reported by line and field.
    #[test]
    fn all_that_is_wrong_is_told_by_line_and_field() {
        let problems = read("[qos]\nport = 7\n[[qos.service]]\nname = \"a b\"\nvlan = -1\n");
        let problems = problems.map(|_| ()).unwrap_err();
        let starts = [
            "net.toml:2: port is 7",
            "net.toml:4: name is \"a b\"",
            "net.toml:5: vlan is",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:#?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem}");
        }
        let problems = read(
            "[[qos.port]]\nat = \"1:2\"\nrate = \"10mbit\"\nqueues = [\n  \
             { number = 1, min = \"20mbit\" },\n]\n\
             [[qos.policy]]\nname = \"p\"\nservice = \"voice\"\ndrop = true\npriority = 10000\n",
        );
        let problems = problems.map(|_| ()).unwrap_err();
        assert_eq!(
            problems,
            [
                "net.toml:4: queues: the minima are 20mbit together, and the port has 10mbit",
                "net.toml:5: min: 20mbit is above the port's rate, 10mbit",
                "net.toml:9: service: there is no service 'voice'",
                "net.toml:11: priority: 10000 is not 0 to 9999",
            ]
        );
    }

    /// A value of a wrong shape hides only what follows from it.
    #[test]
    fn mistakes_of_other_items_are_found_beside_a_value_that_cannot_be_read() {
        let text = "[[qos.port]]\nat = \"1:2\"\nrate = \"10mbit\"\n\
             queues = [{ number = 1, class = \"gold\", min = \"20mbit\" }]\n\
             [[qos.service]]\nname = \"voice\"\nproto = \"http\"\nsrc_port = 7\nvlan = 5000\n\
             [[qos.policy]]\nname = \"p\"\nservice = \"voice\"\nqueue = \"silver\"\n\
             [[qos.policy]]\nname = \"q\"\nservice = \"voice\"\npriority = 10000\n";
        let all = read(text).map(drop).unwrap_err();
        let starts = [
            "net.toml:4: queues: the minima",
            "net.toml:4: min: 20mbit is above",
            "net.toml:7: proto: 'http' is none of",
            "net.toml:9: vlan: 5000 is not 0 to 4094",
            "net.toml:13: queue: no port has a queue 'silver'",
            "net.toml:14: policy 'q': it does nothing",
            "net.toml:17: priority: 10000 is not 0 to 9999",
        ];
        assert_eq!(all.len(), starts.len(), "{all:#?}");
        for (problem, start) in all.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem} is not {start}");
        }
        // A queue that cannot be read is not missing, nor is a service.
        let text = text.replace("number = 1", "number = true");
        let all = read(&text).map(drop).unwrap_err().join("\n");
        assert!(
            all.contains("number is true") && !all.contains("silver"),
            "{all}"
        );
        let text = text.replace("name = \"voice\"\n", "name = 7\n");
        let all = read(&text).map(drop).unwrap_err().join("\n");
        assert!(
            all.contains("name is 7") && !all.contains("no service"),
            "{all}"
        );
        // Two queues of one class are a mistake, whatever is wrong with another port.
        let text = "[[qos.port]]\nat = \"1:2\"\nrate = \"10mbit\"\nqueues = [\n  \
             { number = 1, class = \"gold\" }, { number = 2, class = \"gold\" },\n]\n\
             [[qos.port]]\nat = \"1:3\"\nrate = true\n";
        let all = read(text).map(drop).unwrap_err().join("\n");
        assert!(
            all.contains("'gold' is queue 1's already") && all.contains("rate is true"),
            "{all}"
        );
        // One section in place of a list is a mistake, and is read nevertheless.
        let all = read("[qos.port]\nat = \"1:2\"\nrate = 7\n")
            .map(drop)
            .unwrap_err();
        assert_eq!(all.len(), 2, "{all:#?}");
    }
}
