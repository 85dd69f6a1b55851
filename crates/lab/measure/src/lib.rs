//! Statistics of what was measured.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod order;
pub mod quantiles;
pub mod stats;
