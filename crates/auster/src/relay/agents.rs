//! `--openflow`, `--ovsdb` and `--agent`: the agents of a switch by name, as one end has them.

use std::collections::BTreeMap;

use net::method::{Method, Protocol, UdpMethod};
use relay::Kind;
use tunnel::{OPENFLOW, OVSDB, Target};

use super::plan::{self, Mistakes, method};
use super::wishes;
use cli::failure::Failure;

/// Names appear in messages and logs.
const NAME_LEN_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Agents {
    pub passive: BTreeMap<String, Method>,
    pub active: BTreeMap<String, Method>,
    pub passive_udp: BTreeMap<String, UdpMethod>,
    pub active_udp: BTreeMap<String, UdpMethod>,
    /// The classes stated for agents.
    pub classes: BTreeMap<String, Kind>,
}

impl Agents {
    /// Reads the valid agents, and notes the mistakes of the others.
    pub fn parse(
        openflow: &str,
        ovsdb: Option<&str>,
        more: &[String],
        mistakes: &mut Mistakes,
    ) -> Agents {
        let mut agents = Agents::default();
        let openflow = (OPENFLOW, method(openflow, Protocol::OpenFlow));
        let ovsdb = ovsdb.map(|ovsdb| (OVSDB, method(ovsdb, Protocol::Ovsdb)));
        for (name, method) in std::iter::once(openflow).chain(ovsdb) {
            mistakes.keep(method.and_then(|method| agents.add(name, method)));
        }
        for agent in more {
            mistakes.keep(agents.add_text(agent));
        }
        agents
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        let streams = self.passive.keys().chain(self.active.keys());
        let datagrams = self.passive_udp.keys().chain(self.active_udp.keys());
        streams.chain(datagrams).map(String::as_str)
    }

    /// Whether any agent needs certificates.
    pub fn any_is_certified(&self) -> bool {
        let mut methods = self.passive.values().chain(self.active.values());
        methods.any(plan::is_certified)
    }

    /// The targets of the channels that the other end opens.
    pub fn targets(&self) -> BTreeMap<String, Target> {
        let streams = self.active.iter();
        let streams = streams.map(|(name, method)| (name.clone(), Target::Dial(method.clone())));
        let datagrams = self.active_udp.iter();
        let datagrams =
            datagrams.map(|(name, method)| (name.clone(), Target::Datagrams(method.clone())));
        streams.chain(datagrams).collect()
    }

    /// Warns after all checks have passed, so that an error stands alone.
    pub fn warn_if_exposed(&self) {
        for (name, method) in self.passive.iter().chain(&self.active) {
            if method.is_exposed() {
                tracing::warn!("{method} carries '{name}' unprotected; use 127.0.0.1 or ssl:");
            }
        }
        for (name, method) in self.passive_udp.iter().chain(&self.active_udp) {
            if method.is_exposed() {
                tracing::warn!("{method} carries '{name}' unprotected; use 127.0.0.1");
            }
        }
    }

    /// `NAME=METHOD[,class=CLASS]`.
    fn add_text(&mut self, given: &str) -> Result<(), Failure> {
        let wrong = |problem: String| Failure::usage(format!("--agent {given}: {problem}"));
        let (name, rest) = given.split_once('=').ok_or_else(|| {
            wrong("write NAME=METHOD[,class=CLASS], as gnmi=tcp:127.0.0.1:9339".to_owned())
        })?;
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_fit) {
            return Err(wrong(format!(
                "the name '{name}' is not of 1 to {NAME_LEN_MAX} letters, digits, '.', '_' and '-'"
            )));
        }
        if name == OPENFLOW {
            return Err(wrong(format!(
                "'{name}' is what --openflow is; give it another name"
            )));
        }
        let mut fields = rest.split(',');
        let text = fields.next().unwrap_or_default();
        let mut class = None;
        for field in fields {
            let value = match field.split_once('=') {
                Some(("class", value)) => value,
                _ => {
                    return Err(wrong(format!(
                        "'{field}' is no field of an agent; write class=CLASS"
                    )));
                }
            };
            if class.is_some() {
                return Err(wrong("class is given twice".to_owned()));
            }
            class = Some(wishes::kind(value).map_err(|e| wrong(format!("class: {e}")))?);
        }
        match UdpMethod::parse(text) {
            Some(udp) => self.add_udp(name, udp.map_err(|e| wrong(e.to_string()))?)?,
            None => {
                let method = Method::parse(text, Protocol::OpenFlow);
                self.add(name, method.map_err(|e| wrong(e.to_string()))?)?;
            }
        }
        if let Some(class) = class {
            self.classes.insert(name.to_owned(), class);
        }
        Ok(())
    }

    fn add(&mut self, name: &str, method: Method) -> Result<(), Failure> {
        self.refuse_twice(name)?;
        let side = if method.is_passive() {
            &mut self.passive
        } else {
            &mut self.active
        };
        side.insert(name.to_owned(), method);
        Ok(())
    }

    fn add_udp(&mut self, name: &str, method: UdpMethod) -> Result<(), Failure> {
        self.refuse_twice(name)?;
        let side = if method.is_passive {
            &mut self.passive_udp
        } else {
            &mut self.active_udp
        };
        side.insert(name.to_owned(), method);
        Ok(())
    }

    fn refuse_twice(&self, name: &str) -> Result<(), Failure> {
        match self.names().any(|known| known == name) {
            false => Ok(()),
            true => Err(Failure::usage(format!(
                "the agent '{name}' is given twice; give it another name"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(more: &[&str]) -> Result<Agents, String> {
        let more: Vec<String> = more.iter().map(|agent| (*agent).to_owned()).collect();
        let mut mistakes = Mistakes::default();
        let agents = Agents::parse("tcp:127.0.0.1", None, &more, &mut mistakes);
        let lines: Vec<String> = mistakes.lines().collect();
        match lines.is_empty() {
            true => Ok(agents),
            false => Err(lines.join("\n")),
        }
    }

    fn parse(agent: &str) -> Result<Agents, String> {
        parse_all(&[agent])
    }

    #[test]
    fn an_agent_has_a_name_a_method_and_maybe_a_class() {
        let agents = parse("netconf=ptcp:830:127.0.0.1,class=exchange").unwrap();
        assert!(agents.passive.contains_key("netconf"));
        assert_eq!(agents.classes["netconf"], Kind::Exchange);
        let agents = parse("snmp=udp:127.0.0.1:161").unwrap();
        assert_eq!(agents.active_udp["snmp"].port, 161);
        assert!(agents.classes.is_empty());
        assert!(matches!(agents.targets()["snmp"], Target::Datagrams(_)));
        let agents = parse("traps=pudp:162:127.0.0.1,class=port-status").unwrap();
        assert_eq!(agents.classes["traps"], Kind::State);
        assert!(agents.passive_udp.contains_key("traps"));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_field() {
        for (agent, problem) in [
            ("snmp", "write NAME=METHOD[,class=CLASS]"),
            ("=udp:127.0.0.1:161", "the name ''"),
            ("s n=udp:127.0.0.1:161", "the name 's n'"),
            ("openflow=tcp:127.0.0.1", "give it another name"),
            ("snmp=udp:127.0.0.1", "the port is missing: udp:HOST:PORT"),
            ("snmp=dgram:127.0.0.1:1", "no connection method"),
            (
                "a=tcp:127.0.0.1:1,class=urgent",
                "class: 'urgent' is no kind",
            ),
            ("a=tcp:127.0.0.1:1,class=", "class: '' is no kind"),
            (
                "a=tcp:127.0.0.1:1,lane=3",
                "'lane=3' is no field of an agent",
            ),
            ("a=tcp:127.0.0.1:1,", "'' is no field of an agent"),
            ("a=tcp:h:1,class=echo,class=echo", "class is given twice"),
        ] {
            let error = parse(agent).unwrap_err();
            assert!(error.contains(problem), "{agent}: {error}");
        }
        let all = ["a=udp:127.0.0.1:1", "a=tcp:127.0.0.1:1", "snmp"];
        let errors = parse_all(&all).unwrap_err();
        assert_eq!(errors.lines().count(), 2, "{errors}");
        assert!(errors.contains("'a' is given twice"), "{errors}");
    }
}
