//! `kind = "occupancy"`: the number of entries that the switches have in a table.
//!
//! The probe asks each switch for table statistics at its management socket, beside the controller.
//! The cost to the switch does not depend on the number of entries.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cli::failure::Failure;
use testbed::topology::Topology;

use super::{Probe, Scene, Series};
use crate::engine::expression::{MANY, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

/// The entries of the fullest switch over time.
pub struct Occupancy {
    table: usize,
}

pub const FIGURES: [(&str, Shape); 1] = [("entries", MANY)];

/// The resolution of occupancy: 90 new flows at 3,600 a second.
const INTERVAL: Duration = Duration::from_millis(25);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const TABLE_MAX: u64 = 253;

impl Occupancy {
    pub fn read(section: &Section<'_>) -> Option<Occupancy> {
        let table = section.count("table", 0..=TABLE_MAX).unwrap_or(0);
        Some(Occupancy {
            table: table as usize,
        })
    }
}

impl Probe for Occupancy {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let failed = |e: io::Error| Failure::machine(format!("a switch's table statistics: {e}"));
        let names = scene.topology.switches.iter().map(|switch| &switch.name);
        let sockets = names.map(|name| scene.plane.management_socket(name));
        let switches: io::Result<Vec<Switch>> = sockets.map(|path| Switch::open(&path)).collect();
        let mut switches = switches.map_err(failed)?;
        let mut series = Series::new();
        while scene.epoch.elapsed() < scene.until {
            let at = scene.epoch.elapsed();
            let mut most = 0;
            for switch in &mut switches {
                most = most.max(switch.entries(self.table).map_err(failed)?);
            }
            series.push((at, most.into()));
            std::thread::sleep(INTERVAL);
        }
        Ok(series)
    }

    fn figure(&self, _: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let within = series.iter().filter(|(at, _)| window.has(*at));
        Value::Many(within.map(|(_, entries)| *entries).collect())
    }
}

const HEADER_BYTES: usize = 8;
const HELLO: [u8; HEADER_BYTES] = [4, 0, 0, 8, 0, 0, 0, 1];
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const ERROR: u8 = 1;
const MULTIPART_REPLY: u8 = 19;
const TABLE_REQUEST: [u8; 16] = [4, 18, 0, 16, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0];
/// The rows of tables, after the reply's header.
const ROWS_AT: usize = 16;
const ROW_BYTES: usize = 24;
/// The number of entries, after the table's number.
const ACTIVE_AT: usize = 4;

/// The management socket of one switch.
struct Switch {
    socket: UnixStream,
}

impl Switch {
    fn open(path: &Path) -> io::Result<Switch> {
        let mut socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        socket.write_all(&HELLO)?;
        Ok(Switch { socket })
    }

    /// The number of entries of a table.
    fn entries(&mut self, table: usize) -> io::Result<u32> {
        self.socket.write_all(&TABLE_REQUEST)?;
        loop {
            let message = read_message(&mut self.socket)?;
            match message[1] {
                ECHO_REQUEST => self.socket.write_all(&echo_reply(message))?,
                ERROR => return Err(io::Error::other(format!("the switch says {message:?}"))),
                MULTIPART_REPLY => {
                    let row = message.get(ROWS_AT + table * ROW_BYTES..);
                    let active = row.and_then(|row| row.get(ACTIVE_AT..)?.first_chunk());
                    let active = active.map(|active| u32::from_be_bytes(*active));
                    return active.ok_or_else(|| io::Error::other("no table in the answer"));
                }
                _ => {}
            }
        }
    }
}

fn echo_reply(mut request: Vec<u8>) -> Vec<u8> {
    request[1] = ECHO_REPLY;
    request
}

fn read_message(socket: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = vec![0; HEADER_BYTES];
    socket.read_exact(&mut message)?;
    let len = u16::from_be_bytes([message[2], message[3]]);
    message.resize(usize::from(len).max(HEADER_BYTES), 0);
    socket.read_exact(&mut message[HEADER_BYTES..])?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use openflow::multipart::{MultipartReply, ReplyBody, TableStats};
    use openflow::{Frame, Message, TableId, Version, Xid, decode, encode};

    use super::*;

    #[test]
    fn the_request_is_one_and_the_answer_is_found_behind_others() {
        let request = Frame::new(TABLE_REQUEST.to_vec().into()).unwrap();
        let request = decode(&request).unwrap();
        assert!(format!("{request:?}").contains("Table"), "{request:?}");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let row = |table, active_count| TableStats {
            table_id: TableId(table),
            active_count,
            lookup_count: 9,
            matched_count: 8,
            v10: None,
        };
        let reply = Message::MultipartReply(MultipartReply {
            more: false,
            body: ReplyBody::Table(vec![row(0, 70_000), row(1, 3)]),
        });
        theirs.write_all(&HELLO).unwrap();
        theirs
            .write_all(&[4, ECHO_REQUEST, 0, 9, 0, 0, 0, 5, b'x'])
            .unwrap();
        let reply = encode(Version::V13, Xid(2), &reply).unwrap();
        theirs.write_all(reply.bytes()).unwrap();
        let mut switch = Switch { socket: ours };
        assert_eq!(switch.entries(0).unwrap(), 70_000);
        let mut sent = [0; TABLE_REQUEST.len() + 9];
        theirs.read_exact(&mut sent).unwrap();
        assert_eq!(sent[..16], TABLE_REQUEST);
        assert_eq!(sent[16..], [4, ECHO_REPLY, 0, 9, 0, 0, 0, 5, b'x']);
        theirs
            .write_all(&[4, ERROR, 0, 12, 0, 0, 0, 2, 0, 1, 0, 0])
            .unwrap();
        assert!(switch.entries(0).is_err());
    }
}
