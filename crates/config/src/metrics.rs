//! `[metrics]` of the configuration: the figures served in addition to those of every controller.

use toml::de::DeTable;

use crate::fields::Fields;

/// Ports with counters, unless the file says otherwise.
const PORTS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Counters of each port.
    pub has_ports: bool,
    /// Counters of each queue of a port.
    pub has_queues: bool,
    /// The most ports with series of their own; queues have eight times as many.
    pub ports_max: usize,
    /// Names of Faucet and Gauge in addition to our own.
    pub has_faucet: bool,
}

impl Default for Stated {
    fn default() -> Stated {
        Stated {
            has_ports: false,
            has_queues: false,
            ports_max: PORTS_MAX,
            has_faucet: false,
        }
    }
}

impl Stated {
    pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Stated {
        let mut stated = Stated::default();
        let Some(table) = fields.table(root, "metrics") else {
            return stated;
        };
        let names = ["ports", "queues", "ports_max", "faucet"];
        fields.only(table, "metrics", &names);
        stated.has_ports = fields.bool(table, "ports").unwrap_or(false);
        stated.has_queues = fields.bool(table, "queues").unwrap_or(false);
        stated.has_faucet = fields.bool(table, "faucet").unwrap_or(false);
        let most = fields.integer(table, "ports_max", 1..=262_144);
        let most = most.and_then(|most| usize::try_from(most).ok());
        stated.ports_max = most.unwrap_or(PORTS_MAX);
        stated
    }

    /// Whether switches are asked for the counters of ports at a scrape.
    pub fn asks_for_ports(&self) -> bool {
        self.has_ports || self.has_faucet
    }
}
