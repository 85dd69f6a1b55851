//! The results that a measurement keeps: one document, the machine, raw data, plots.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod machine;
pub mod output;
pub mod plot;
