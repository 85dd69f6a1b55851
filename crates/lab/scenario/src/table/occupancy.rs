//! How many entries a switch has, asked of the switch itself beside the controller: over its
//! management socket, by table statistics, which cost it the same however many there are.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How finely occupancy is seen: 90 new flows at 3,600 a second.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

const HEADER_BYTES: usize = 8;
const HELLO: [u8; HEADER_BYTES] = [4, 0, 0, 8, 0, 0, 0, 1];
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const ERROR: u8 = 1;
const MULTIPART_REPLY: u8 = 19;
const TABLE_REQUEST: [u8; 16] = [4, 18, 0, 16, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0];
/// The active entries in the first table's row, after the reply's header and the table's number.
const ACTIVE_AT: std::ops::Range<usize> = 20..24;

/// One switch.
pub struct Probe {
    socket: UnixStream,
}

impl Probe {
    pub fn open(socket: &Path) -> io::Result<Probe> {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        socket.write_all(&HELLO)?;
        Ok(Probe { socket })
    }

    /// Entries of table 0.
    pub fn entries(&mut self) -> io::Result<u32> {
        self.socket.write_all(&TABLE_REQUEST)?;
        loop {
            let message = read_message(&mut self.socket)?;
            match message[1] {
                ECHO_REQUEST => self.socket.write_all(&echo_reply(message))?,
                ERROR => return Err(io::Error::other(format!("the switch says {message:?}"))),
                MULTIPART_REPLY => {
                    let active = message.get(ACTIVE_AT).and_then(|b| b.try_into().ok());
                    let active = active.map(u32::from_be_bytes);
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

/// Samples the entries of the fullest switch until `over`, with the seconds since the start.
pub fn sample(probes: &mut [Probe], over: &AtomicBool) -> io::Result<Vec<(f64, u32)>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let at_s = start.elapsed().as_secs_f64();
        let mut most = 0;
        for probe in &mut *probes {
            most = most.max(probe.entries()?);
        }
        samples.push((at_s, most));
        std::thread::sleep(SAMPLE_INTERVAL);
    }
    Ok(samples)
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
        let mut probe = Probe { socket: ours };
        assert_eq!(probe.entries().unwrap(), 70_000);
        let mut sent = [0; TABLE_REQUEST.len() + 9];
        theirs.read_exact(&mut sent).unwrap();
        assert_eq!(sent[..16], TABLE_REQUEST);
        assert_eq!(sent[16..], [4, ECHO_REPLY, 0, 9, 0, 0, 0, 5, b'x']);
        theirs
            .write_all(&[4, ERROR, 0, 12, 0, 0, 0, 2, 0, 1, 0, 0])
            .unwrap();
        assert!(probe.entries().is_err());
    }
}
