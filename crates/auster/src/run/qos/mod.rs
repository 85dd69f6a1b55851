//! What is asked of the data path, in two layers: the `[qos]` section of the configuration, and what
//! the API has been asked for. A name, or a port, is of one layer: neither changes what is the
//! other's, so that reading the file again takes away nothing that somebody else has made.
//!
//! A change is taken whole or not at all: both layers are put together, checked against the network
//! by the controller, and what is in use stays if anything is wrong.

pub mod held;
mod locate;
pub mod read;
mod section;
pub mod show;
pub mod tree;

pub use held::{Held, Refused};
pub use locate::Item;
pub use section::Section;
