//! Copies of records that are sent a second time by datagram, so that a lost packet need not be
//! sent again to be there.
//!
//! A copy says which record of which lane it is. It is taken when it is the next of its lane, kept
//! a while when it is one of those behind, and dropped when its record is there: by place, so
//! nothing is handed over twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use sched::Lane;

use super::wire::{ChannelId, Record};

/// Copies of one channel that wait for a record before them, and their bytes.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// A record to be sent again by datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRecord {
    pub channel: ChannelId,
    pub lane: Lane,
    /// Records of the lane before it.
    pub place: u64,
    pub head: Bytes,
    pub body: Bytes,
}

/// What became of the copies that a session was given, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounters {
    /// Were there before their record: what they were sent for.
    pub used: u64,
    /// Their record was there.
    pub doubled: u64,
    /// Too far ahead of their lane or of a channel that is not there.
    pub refused: u64,
}

impl CopyCounters {
    pub fn add(&mut self, other: CopyCounters) {
        self.used += other.used;
        self.doubled += other.doubled;
        self.refused += other.refused;
    }
}

/// Copies that are ahead of their lane.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    waiting: BTreeMap<(Lane, u64), Record>,
    bytes: usize,
}

impl Ahead {
    /// False when there is no room.
    pub fn keep(&mut self, lane: Lane, place: u64, record: Record) -> bool {
        let bytes = record.body.as_ref().map_or(0, Bytes::len);
        let is_full = self.waiting.len() >= WAITING_MAX || self.bytes + bytes > WAITING_BYTES_MAX;
        if is_full || self.waiting.contains_key(&(lane, place)) {
            return false;
        }
        self.bytes += bytes;
        self.waiting.insert((lane, place), record);
        true
    }

    pub fn take(&mut self, lane: Lane, place: u64) -> Option<Record> {
        let record = self.waiting.remove(&(lane, place))?;
        self.bytes -= record.body.as_ref().map_or(0, Bytes::len);
        Some(record)
    }
}
