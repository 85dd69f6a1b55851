//! Statistics of measurements.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod order;
pub mod quantiles;
pub mod stats;

/// Returns the distinct values, in order of their first occurrence.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
