//! Guests by name: their connections, entries and messages.

use control::guest::GuestView;
use driver::guests::Shed;

use crate::exposition::{Family, Labels, Value};

pub fn families(guests: &[GuestView], unread: &Shed) -> Vec<Family> {
    if guests.is_empty() {
        return Vec::new();
    }
    let named = |guest: &GuestView| vec![("guest", guest.name.to_string())];
    let each = |value: &dyn Fn(&GuestView) -> Value| -> Vec<(Labels, Value)> {
        let samples = guests.iter();
        samples.map(|guest| (named(guest), value(guest))).collect()
    };
    let shed = (0u8..).zip(guests).flat_map(|(number, guest)| {
        let reasons = [
            ("rate", guest.counts.packet_ins_shed),
            ("unread", unread.count(number)),
        ];
        reasons.map(|(reason, count)| {
            let mut labels = named(guest);
            labels.push(("reason", reason.to_owned()));
            (labels, Value::Count(count))
        })
    });
    let packets = guests.iter().flat_map(|guest| {
        let directions = [
            ("in", guest.counts.packet_ins),
            ("out", guest.counts.packet_outs),
        ];
        directions.map(|(direction, count)| {
            let mut labels = named(guest);
            labels.push(("direction", direction.to_owned()));
            (labels, Value::Count(count))
        })
    });
    let family = |name, help, samples| Family {
        name,
        help,
        samples,
    };
    vec![
        family(
            "auster_guest_connections",
            "Switches for which a guest is connected",
            each(&|guest| {
                let seats = guest.switches.iter();
                let connected = seats.filter(|seat| seat.is_connected).count();
                Value::Gauge(connected as f64)
            }),
        ),
        family(
            "auster_guest_entries",
            "Entries of a guest at all switches",
            each(&|guest| {
                let entries: usize = guest.switches.iter().map(|seat| seat.entries).sum();
                Value::Gauge(entries as f64)
            }),
        ),
        family(
            "auster_guest_messages",
            "Messages of a guest",
            each(&|guest| Value::Count(guest.counts.messages)),
        ),
        family(
            "auster_guest_refused",
            "Messages of a guest that were answered with an error",
            each(&|guest| Value::Count(guest.counts.refused)),
        ),
        family(
            "auster_guest_mended",
            "Entries of a guest set again that somebody else has deleted or changed",
            each(&|guest| Value::Count(guest.counts.mended)),
        ),
        family(
            "auster_guest_packets",
            "Packets to a guest (in) and of a guest (out)",
            packets.collect(),
        ),
        family(
            "auster_guest_packets_shed",
            "Packets a guest did not get, over its rate or because it does not read",
            shed.collect(),
        ),
    ]
}
