//! The commands of `auster`. The laboratory's commands are only names here: another program has
//! them.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use cli::{failure, log, pages};

use crate::{
    acl, api, cluster, config, events, health, import, ofp, pki, policy, qos, queues, relay,
    reload, state, support, top, trace, version,
};

/// The southbound of an OpenFlow network, made fast, safe and predictable.
#[derive(Parser)]
#[command(name = "auster", version, max_term_width = 100, after_help = failure::EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    #[command(flatten)]
    pub log: log::Args,
}

#[derive(Subcommand)]
pub enum Command {
    /// Control a network: listen for switches, discover links, learn hosts, set up paths
    #[command(after_help = "\
Example:
  auster run --listen ptcp:6653
  auster run pssl:6653 -p c1-privkey.pem -c c1-cert.pem -C pki/switchca/cacert.pem")]
    Run(::config::Args),
    /// Make a running auster run reread its configuration, and print the changes
    #[command(after_help = reload::EXAMPLE)]
    Reload(reload::Args),
    /// Settings of auster run: their schema for editors, and their values and sources
    #[command(subcommand)]
    Config(config::Command),
    /// Carry OpenFlow, OVSDB and other agents of unmodified switches and controllers over QUIC
    #[command(subcommand)]
    Relay(relay::Command),
    /// Queues of an interface that carries control and data, chosen by DSCP
    #[command(subcommand)]
    Queues(queues::Command),
    /// Queues, services, policies and circuits of a running auster run, through its API
    #[command(subcommand)]
    Qos(qos::Command),
    /// Events of the network of a running auster run, through its API
    #[command(after_help = events::EXAMPLE)]
    Events(events::Args),
    /// Switches, links by load, channels and events of a running auster run, in a terminal
    #[command(after_help = top::EXAMPLE)]
    Top(top::Args),
    /// Check whether a running auster works: exit code 0 or 1, and a line
    #[command(after_help = health::EXAMPLE)]
    Health(health::Args),
    /// Collect what a developer needs to know about a running auster in one file, without secrets
    #[command(after_help = support::EXAMPLE)]
    Support(support::Args),
    /// Everything set through the API of a running auster run, as one document
    #[command(subcommand)]
    State(state::Command),
    /// Users of the API of auster run: their tokens
    #[command(subcommand)]
    Api(api::Command),
    /// Certificates for controllers, relays and switches, in ovs-pki's file layout
    #[command(subcommand)]
    Pki(pki::Command),
    /// Decode OpenFlow messages, as ovs-ofctl ofp-print and ofp-parse-pcap do
    #[command(subcommand)]
    Ofp(ofp::Command),
    /// Policy maps: check them, show them, and explain their effect on a message
    #[command(subcommand)]
    Policy(policy::Command),
    /// Explain a packet's path: the entry that it matches at each switch, and where it ends
    #[command(after_help = trace::EXAMPLE)]
    Trace(trace::Args),
    /// Access lists of a configuration: explain their effect on a packet
    #[command(subcommand)]
    Acl(acl::Command),
    /// Several controllers on etcd: the members, and the one that serves the switches
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Convert configurations of other controllers, as far as auster supports them
    #[command(subcommand)]
    Import(import::Command),
    /// Print this build's version, commit, date and compiler
    #[command(after_help = version::EXAMPLE)]
    Version(version::Args),
    /// Write a shell completion script to standard output
    Completions(pages::CompletionsArgs),
    /// Write the manual pages of every command into a directory
    Man(pages::ManArgs),
    /// A network of real Open vSwitch switches, hosts and impaired links on this machine
    /// (auster-lab)
    #[command(
        flatten_help = false,
        disable_help_flag = true,
        after_help = "\
Example:
  auster lab up ring,4"
    )]
    Lab(Words),
    /// Measure controllers, switches, relays and networks (auster-lab)
    #[command(
        disable_help_flag = true,
        after_help = "\
Example:
  auster bench controller tcp:127.0.0.1:6653"
    )]
    Bench(Words),
    /// Simulate the control channel in virtual time, with the production schedulers (auster-lab)
    #[command(
        disable_help_flag = true,
        after_help = "\
Example:
  auster sim order"
    )]
    Sim(Words),
    /// Model the bytes that carry messages over TCP, TLS and QUIC (auster-lab)
    #[command(
        disable_help_flag = true,
        after_help = "\
Example:
  auster model"
    )]
    Model(Words),
    /// Measure the claims of five papers on this machine (auster-lab)
    #[command(
        disable_help_flag = true,
        after_help = "\
Example:
  auster papers run --quick"
    )]
    Papers(Words),
}

/// The words of a command of the laboratory, which reads them itself.
#[derive(clap::Args)]
pub struct Words {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    words: Vec<OsString>,
}
