//! The product: controller, relays, queues, policies, certificates. The laboratory uses parts of
//! it.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]
// A doc comment on a flag is its help text, where [ ] is grammar, not a link.
#![allow(rustdoc::broken_intra_doc_links)]
// The macros panic when they cannot write, and wait when nobody reads: see `cli::output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod acl;
pub mod api;
pub mod channel;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod database;
pub mod events;
pub mod health;
pub mod import;
pub mod ofp;
pub mod pki;
pub mod policy;
pub mod qos;
pub mod queues;
pub mod relay;
pub mod reload;
pub mod run;
pub mod state;
pub mod support;
pub mod top;
pub mod trace;
pub mod version;
