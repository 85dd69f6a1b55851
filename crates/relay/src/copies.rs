//! Copies of records, sent a second time by datagram so that a lost packet causes no delay.
//!
//! A copy names the lane and place of its record. The receiver takes the copy if its record is the
//! next of its lane, keeps it for a while if its record is further ahead, and drops it if its
//! record has arrived. The place ensures that no record is handed over twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use sched::Lane;

use super::wire::{ChannelId, Record};

/// Limits on copies of one channel that wait for an earlier record: their number, and their bytes.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// A record that is sent again by datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRecord {
    pub channel: ChannelId,
    pub lane: Lane,
    /// The number of records of the lane before it.
    pub place: u64,
    pub head: Bytes,
    pub body: Bytes,
}

/// The outcomes of the copies that a session received, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounters {
    /// Copies that arrived before their record, as intended.
    pub used: u64,
    /// Copies whose record had already arrived.
    pub doubled: u64,
    /// Copies too far ahead of their lane, or for an absent channel.
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
    /// Keeps a copy. Returns false when there is no room.
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
