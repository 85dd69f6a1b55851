//! The facts that forwarding reads from other modules: the network, the hosts, the tables and the
//! settings. The modules that know an answer add it: classes and timeouts, services, routes.

use crate::timeouts::Timeouts;

use super::config::Mode;
use super::hosts::Hosts;
use super::network::Network;
use super::tables::Tables;

#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub net: &'a Network,
    pub hosts: &'a Hosts,
    pub tables: &'a Tables,
    pub timeouts: &'a Timeouts,
    pub mode: Mode,
}

/// Borrows the facts alone, so that the machines beside them can change.
macro_rules! facts {
    ($controller:expr) => {
        Facts {
            net: &$controller.network,
            hosts: &$controller.hosts,
            tables: &$controller.tables,
            timeouts: &$controller.config.timeouts,
            mode: $controller.config.mode,
        }
    };
}
pub(super) use facts;
