//! Classes, order and queues of OpenFlow messages, without I/O or clock.
//!
//! [`class`] says what a message is to a scheduler, by its type alone. [`order`] lets messages
//! travel on several lanes that do not wait for each other and still be handed over in an order
//! that OpenFlow allows. [`fifo`] is the queue with a bound that everything else is made of.

pub mod class;
pub mod classify;
pub mod fifo;
pub mod order;
pub mod policy;
pub mod scheduler;

pub use class::{Class, Order, TrafficType, class_of};
pub use classify::{Binding, Classifier, Droppable, Tag, Verdict};
pub use fifo::Fifo;
pub use order::{Direction, Gate, Lane, LaneKind, Place, Sequencer, Stamp};
pub use policy::PolicyMap;
pub use scheduler::Scheduler;
