//! The statements of operators about a network: options, the configuration file, and documents that
//! the API takes. Each is read whole, and all mistakes in it are reported at once. Nothing here
//! opens a connection.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]
// A doc comment on a flag is its help text, where [ ] is grammar, not a link.
#![allow(rustdoc::broken_intra_doc_links)]
// The macros panic when they cannot write, and wait when nobody reads: see `cli::output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
pub mod api;
pub mod args;
pub mod bonds;
pub mod cluster;
pub mod digest;
pub mod drain;
pub mod fields;
pub mod flows;
pub mod gateways;
pub mod guests;
pub mod layout;
pub mod metrics;
pub mod mirrors;
pub mod multicast;
pub mod parts;
pub mod policy;
pub mod qos;
mod record;
pub mod settings;
pub mod timeouts;
pub mod tokens;
pub mod topology;
pub mod vlans;

pub use args::Args;
pub use settings::Settings;
