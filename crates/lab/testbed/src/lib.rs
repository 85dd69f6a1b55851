//! Networks on this machine: namespaces, Open vSwitch, impaired links, controllers, probes.

// The pages are read beside the source: links may point to private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod capture;
pub mod cpu;
pub mod impairment;
pub mod ledger;
pub mod link;
pub mod netns;
pub mod network;
pub mod plane;
pub mod probe;
pub mod segments;
pub mod status;
pub mod tools;
pub mod topology;
pub mod topology_file;
pub mod traffic;
