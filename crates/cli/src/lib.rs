//! Code that the commands of both programs share: their failures ([`failure`]), their output
//! ([`output`], [`progress`], [`table`]), their log, signals, help pages, and other programs.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod certificates;
pub mod date;
pub mod failure;
pub mod flag;
pub mod interrupt;
pub mod limits;
pub mod log;
pub mod memory;
pub mod output;
pub mod pages;
pub mod parallel;
pub mod process;
pub mod program;
pub mod progress;
pub mod runtime;
pub mod service;
pub mod signals;
pub mod table;
pub mod temp_dir;
mod toml;
pub mod turns;
pub mod whole;

pub use toml::toml_problem;
