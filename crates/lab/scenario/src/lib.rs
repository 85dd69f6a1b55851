//! Experiments on real networks, each described by a file in `scenarios/`.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]

mod engine;
pub mod experiment;
pub mod report;
