//! Event engine, links, model switches and hosts under virtual time.

pub mod link;
