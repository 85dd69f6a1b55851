//! The requests for the data path, in two layers: the `[qos]` section of the configuration, and the
//! requests made through the API. A name, or a port, belongs to one layer. Neither layer changes
//! the other's items, so reading the file again removes nothing that a client of the API has made.
//!
//! A change is accepted in full or not at all. The controller checks both layers together against
//! the network. If anything is wrong, the old requests stay in use.

mod fit;
pub mod held;
mod locate;
pub mod read;
mod section;
pub mod show;
pub mod tree;

pub use held::{Held, Refused, chooses_packets};
pub use locate::Item;
pub use section::Section;
