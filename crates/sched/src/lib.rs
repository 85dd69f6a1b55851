//! Classes, order and queues of OpenFlow messages, without I/O or clock.
//!
//! [`class`] says what a message is to a scheduler, by its type alone. [`order`] lets messages
//! travel on several lanes that do not wait for each other and still be handed over in an order
//! that OpenFlow allows. [`scheduler`] has the queues, and says what is sent next.

pub mod class;
pub mod classify;
pub mod order;
pub mod policy;
pub mod scheduler;

pub use class::{Class, Order, TrafficType, class_of};
pub use classify::{Binding, Classifier, Droppable, Tag, Verdict};
pub use order::{Direction, Gate, Lane, LaneKind, Place, Sequencer, Stamp};
pub use policy::PolicyMap;
pub use scheduler::Scheduler;
