//! DHCP for IPv4 (RFC 2131, RFC 2132): the parts of a message that state which client may use which
//! address.
//!
//! Clients are not trusted: a message is read as a whole or not at all.

use std::net::Ipv4Addr;

use super::build::{self, Host};
use super::ip::Datagram;
use crate::types::MacAddr;

/// The UDP port of servers.
pub const SERVER: u16 = 67;
/// The UDP port of clients.
pub const CLIENT: u16 = 68;

const FROM_CLIENT: u8 = 1;
const FROM_SERVER: u8 = 2;
const ETHERNET: [u8; 2] = [1, 6];
/// Length of the part before the options, including the cookie at the start of the options.
const FIXED_LEN: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const AT_XID: usize = 4;
const AT_CLIENT_IP: usize = 12;
const AT_YOUR_IP: usize = 16;
const AT_CLIENT: usize = 28;
const AT_COOKIE: usize = 236;

const PAD: u8 = 0;
const LEASE_TIME: u8 = 51;
const KIND: u8 = 53;
const END: u8 = 255;

/// The kind of a message (RFC 2132, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A client looks for servers.
    Discover = 1,
    /// A server offers an address.
    Offer = 2,
    /// A client asks for an address, or for more time with its own.
    Request = 3,
    /// A client has found that another host uses its address.
    Decline = 4,
    /// A server gives the address.
    Ack = 5,
    /// A server takes the address back.
    Nak = 6,
    /// A client no longer uses its address.
    Release = 7,
    /// A client with an address asks for other parameters.
    Inform = 8,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind of the message.
    pub kind: Kind,
    /// The client's number for a request and its replies.
    pub xid: u32,
    /// The Ethernet address of the client.
    pub client: MacAddr,
    /// The address that the client has already, or 0.0.0.0.
    pub client_ip: Ipv4Addr,
    /// The address that the server gives, or 0.0.0.0.
    pub your_ip: Ipv4Addr,
    /// The time for which the server gives the address, in seconds.
    pub lease_s: Option<u32>,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Discover,
            2 => Kind::Offer,
            3 => Kind::Request,
            4 => Kind::Decline,
            5 => Kind::Ack,
            6 => Kind::Nak,
            7 => Kind::Release,
            8 => Kind::Inform,
            _ => return None,
        })
    }

    /// Whether servers send this kind, not clients.
    pub fn is_of_server(self) -> bool {
        matches!(self, Kind::Offer | Kind::Ack | Kind::Nak)
    }
}

impl Message {
    /// Reads an Ethernet frame without a tag. Returns `None` if the frame has no whole message for
    /// Ethernet in the direction of its kind.
    pub fn read(frame: &[u8]) -> Option<Message> {
        let packet = Datagram::read(frame)?.ok()?;
        let (ports, data) = packet.udp()?;
        let fixed = data.first_chunk::<FIXED_LEN>()?;
        let [op, hardware @ .., _] = *fixed.first_chunk::<4>()?;
        if hardware != ETHERNET || fixed[AT_COOKIE..] != COOKIE {
            return None;
        }
        let address = |at: usize| Some(Ipv4Addr::from(*fixed.get(at..)?.first_chunk::<4>()?));
        let mut message = Message {
            kind: Kind::Discover,
            xid: u32::from_be_bytes(*fixed.get(AT_XID..)?.first_chunk()?),
            client: MacAddr(*fixed.get(AT_CLIENT..)?.first_chunk()?),
            client_ip: address(AT_CLIENT_IP)?,
            your_ip: address(AT_YOUR_IP)?,
            lease_s: None,
        };
        let mut kind = None;
        let mut options = data.get(FIXED_LEN..)?;
        loop {
            match options {
                // The end option may be missing where the message ends.
                [] | [END, ..] => break,
                [PAD, rest @ ..] => options = rest,
                [code, len, rest @ ..] => {
                    let (value, after) = rest.split_at_checked(usize::from(*len))?;
                    match *code {
                        KIND => {
                            let [number] = *value else { return None };
                            kind = Some(Kind::of(number)?);
                        }
                        LEASE_TIME => {
                            message.lease_s = Some(u32::from_be_bytes(value.try_into().ok()?));
                        }
                        _ => {}
                    }
                    options = after;
                }
                [_] => return None,
            }
        }
        message.kind = kind?;
        let is_of_server = message.kind.is_of_server();
        let is_right = match is_of_server {
            true => op == FROM_SERVER && ports.1 == CLIENT,
            false => op == FROM_CLIENT && ports.1 == SERVER,
        };
        is_right.then_some(message)
    }

    /// Returns the frame of the message from one host to another.
    pub fn frame(&self, from: Host, to: Host) -> Vec<u8> {
        let is_of_server = self.kind.is_of_server();
        let mut data = vec![0; FIXED_LEN];
        data[0] = if is_of_server {
            FROM_SERVER
        } else {
            FROM_CLIENT
        };
        data[1..3].copy_from_slice(&ETHERNET);
        data[AT_XID..][..4].copy_from_slice(&self.xid.to_be_bytes());
        data[AT_CLIENT_IP..][..4].copy_from_slice(&self.client_ip.octets());
        data[AT_YOUR_IP..][..4].copy_from_slice(&self.your_ip.octets());
        data[AT_CLIENT..][..6].copy_from_slice(&self.client.0);
        data[AT_COOKIE..].copy_from_slice(&COOKIE);
        data.extend([KIND, 1, self.kind as u8]);
        if let Some(lease_s) = self.lease_s {
            data.extend([LEASE_TIME, 4]);
            data.extend(lease_s.to_be_bytes());
        }
        data.push(END);
        let ports = match is_of_server {
            true => (SERVER, CLIENT),
            false => (CLIENT, SERVER),
        };
        build::udp(from, to, ports, &data)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: Kind) -> Message {
        Message {
            kind,
            xid: 0x1234_5678,
            client: MacAddr([2, 0, 0, 0, 0, 7]),
            client_ip: Ipv4Addr::new(10, 0, 0, 3),
            your_ip: Ipv4Addr::new(10, 0, 0, 4),
            lease_s: Some(3600),
        }
    }

    fn frame(message: Message) -> Vec<u8> {
        message.frame(Host::numbered(1), Host::numbered(2))
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        for number in 1..=8 {
            let written = message(Kind::of(number).expect("a kind"));
            assert_eq!(Message::read(&frame(written)), Some(written));
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!(Kind::of(9), None);
    }

    #[test]
    fn other_options_and_padding_are_passed_over() {
        let mut data = frame(message(Kind::Ack));
        let at = data.len() - 1;
        data.splice(at..at, [0, 0, 61, 3, 1, 2, 3, 12, 0]);
        // IP and UDP lengths, and no checksums.
        let ip_len = (data.len() - 14) as u16;
        data[16..18].copy_from_slice(&ip_len.to_be_bytes());
        data[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
        data[24..26].fill(0);
        let sum: u32 = data[14..34]
            .chunks(2)
            .map(|b| u32::from(b[0]) << 8 | u32::from(b[1]))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        data[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Message::read(&data), Some(message(Kind::Ack)));
    }

    #[test]
    fn a_message_of_the_other_side_is_not_read() {
        let mut data = frame(message(Kind::Ack));
        data[42] = FROM_CLIENT;
        assert_eq!(Message::read(&data), None, "a client says that it gives");
        let mut data = frame(message(Kind::Request));
        data[36..38].copy_from_slice(&CLIENT.to_be_bytes());
        assert_eq!(Message::read(&data), None, "a question to clients");
    }

    proptest! {
        /// No message that is cut short is read, and none makes the reader fail.
        #[test]
        fn a_message_that_is_cut_short_is_not_read(len in 0usize..295) {
            let whole = frame(message(Kind::Ack));
            let cut = &whole[..len.min(whole.len() - 1)];
            prop_assert_eq!(Message::read(cut), None);
        }

        #[test]
        fn any_bytes_may_come(
            at in 42usize..292,
            bytes in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            let mut data = frame(message(Kind::Request));
            for (place, byte) in data[at..].iter_mut().zip(&bytes) {
                *place = *byte;
            }
            if let Some(read) = Message::read(&data) {
                prop_assert!(!read.kind.is_of_server());
            }
        }
    }
}
