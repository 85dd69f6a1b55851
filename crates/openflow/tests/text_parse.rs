//! Flow syntax: what we read from a line is what `ovs-ofctl parse-flows` reads from it.
//!
//! Both programs' readings are compared as Open vSwitch prints them: our bytes through `ofp-parse`.

#![allow(clippy::disallowed_methods, reason = "a test runs another program")]

mod common;

use common::ovs;
use openflow::message::FlowModCommand;
use openflow::text::{
    parse_actions, parse_flow_mod, parse_flow_mod_as, parse_group_mod, parse_match, parse_message,
    parse_meter_mod, print,
};
use openflow::{Cookie, Frame, Message, Version, Xid, encode};
use proptest::prelude::*;

/// Matches, each of which becomes a flow that outputs to port 1.
const MATCHES: &str = "
priority=0
in_port=1
in_port=LOCAL
in_port=65534
in_port=CONTROLLER
priority=65535,in_port=4
ip
ipv4
ip6
ipv6
arp
rarp
tcp
udp
sctp
icmp
tcp6
udp6
sctp6
icmp6
mpls
mplsm
dl_type=0x88cc
dl_type=0x0800
eth_type=0x86dd
dl_type=2048,nw_proto=6
ip,nw_proto=47
ip,ip_proto=17,udp_dst=53
ipv6,nw_proto=58,icmp_type=128
dl_src=02:00:00:00:00:01
dl_dst=02:00:00:00:00:02
eth_src=02:00:00:00:00:01,eth_dst=ff:ff:ff:ff:ff:ff
dl_dst=01:00:00:00:00:00/01:00:00:00:00:00
dl_src=00:00:00:00:00:00/ff:ff:00:00:00:00
dl_vlan=0
dl_vlan=5
dl_vlan=4095
dl_vlan=0xffff
dl_vlan_pcp=7
dl_vlan=9,dl_vlan_pcp=0
vlan_vid=0x1005
vlan_vid=0x1000/0x1000
vlan_vid=0x1005/0x100f
vlan_pcp=3,vlan_vid=0x1001
vlan_tci=0x1123/0x1fff
vlan_tci=0xf123
vlan_tci=0
vlan_tci=0x1000/0x1000
ip,nw_src=10.0.0.1
ip,nw_src=10.1.2.3/8,nw_dst=192.168.0.0/255.255.0.0
ip,nw_dst=10.0.0.1/255.0.0.255
ip,nw_src=*,nw_dst=1.2.3.4/32
ip,ip_src=10.0.0.1,ip_dst=10.0.0.2/31
ip,nw_tos=184
ip,ip_dscp=46
ip,nw_ecn=3
ip,ip_ecn=1,nw_tos=0
ip,nw_dst=0.0.0.0/0
tcp,tp_src=80
tcp,tp_dst=443,nw_src=10.0.0.0/24
tcp,tcp_src=0x50,tcp_dst=0x1f90
tcp,tcp_dst=0x1000/0xf000
tcp_dst=80,tcp
udp,tp_dst=53
udp,udp_src=68,udp_dst=67
sctp,tp_src=7,tp_dst=8
sctp,sctp_dst=36412
tcp6,tp_dst=22
tcp6,tcp_src=5/0xff
udp6,udp_dst=546,ipv6_dst=ff02::1:2
sctp6,sctp_src=1
icmp,icmp_type=8
icmp,icmp_type=3,icmp_code=1
icmp,tp_src=8,tp_dst=0
icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1
icmp6,icmpv6_type=135,nd_sll=02:00:00:00:00:01
icmp6,icmp_type=136,nd_tll=02:00:00:00:00:02,nd_target=2001:db8::/32
ipv6,ipv6_src=2001:db8::1
ipv6,ipv6_src=2001:db8::/32,ipv6_dst=::1
ipv6,ipv6_dst=fe80::1/ffff::ffff
ipv6,ipv6_label=0x12345
ipv6,ipv6_label=0x5/0xf
ipv6,nw_tos=4,nw_ecn=2
arp,arp_op=1
arp,nw_proto=2
arp,nw_src=10.0.0.1,nw_dst=10.0.0.0/8
arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.2/31
arp,arp_sha=02:00:00:00:00:01,arp_tha=02:00:00:00:00:02
arp,arp_op=1,dl_dst=ff:ff:ff:ff:ff:ff
mpls,mpls_label=16
mpls,mpls_label=1048575,mpls_tc=7,mpls_bos=1
mplsm,mpls_label=3
metadata=0x1234
metadata=0x12/0xff
metadata=0
metadata=5,in_port=3
tun_id=1
tun_id=0x55/0xff,ip
tunnel_id=18446744073709551615
in_port=1,dl_vlan=2,dl_src=02:00:00:00:00:01,tcp,nw_src=1.2.3.4,tp_dst=80
priority=7 in_port=1 udp tp_dst=9
";

/// The texts after `actions=`. The match is TCP in a VLAN, or the text after `|`.
const ACTIONS: &str = "
drop
output:1
output=2
3
LOCAL
local
normal
NORMAL
flood
all
in_port
table|ip
controller
CONTROLLER:128
controller:0
controller(max_len=512)
output:LOCAL
output:CONTROLLER
output:1,output:2,output:3
group:1
group:4294967040
set_queue:7,output:1
set_field:02:00:00:00:00:01->eth_dst
set_field:02:00:00:00:00:01->dl_src,output:1
set_field:10.0.0.1->ip_src
set_field:10.0.0.1->nw_dst,output:1
set_field:80->tcp_dst
set_field:0x50->tcp_src
set_field:46->ip_dscp
set_field:1->nw_ecn
set_field:0x1005->vlan_vid
set_field:3->vlan_pcp
set_field:0x1234->metadata
set_field:77->tun_id
set_field:2001:db8::1->ipv6_dst|ipv6
set_field:0xabcde->ipv6_label|ipv6
set_field:53->udp_dst|udp
set_field:5->sctp_src|sctp
set_field:16->mpls_label|mpls
set_field:2->arp_op|arp
set_field:10.0.0.9->arp_spa|arp
set_field:02:00:00:00:00:01->arp_sha|arp
set_field:fe80::1->nd_target|icmp6,icmp_type=135
mod_dl_src:02:00:00:00:00:01
mod_dl_dst:02:00:00:00:00:02,output:1
mod_nw_src:10.0.0.1
mod_nw_dst:10.0.0.2
mod_nw_tos:184
mod_nw_ecn:2
mod_nw_ttl:64
mod_tp_src:80
mod_tp_dst:443
mod_tp_dst:53|udp6
mod_vlan_vid:5
mod_vlan_vid:5,output:1|ip
mod_vlan_pcp:3|ip
mod_vlan_vid:5,mod_vlan_pcp:3|in_port=1
set_vlan_vid:9
set_vlan_pcp:1
push_vlan:0x8100
push_vlan:0x88a8,set_field:4098->vlan_vid,output:1|ip
pop_vlan
strip_vlan,output:1
strip_vlan,mod_vlan_vid:7,output:2
push_mpls:0x8847,output:1|ip
push_mpls:0x8848,set_mpls_label:5|ip
pop_mpls:0x0800|mpls
set_mpls_ttl:5|mpls
set_mpls_ttl(6)|mpls
set_mpls_label(7)|mpls
set_mpls_tc:3|mpls
dec_mpls_ttl,output:2|mpls
dec_ttl,output:1
goto_table:1
output:1,goto_table:200
meter:4,output:1
meter:1,goto_table:2
write_metadata:0x1234
write_metadata:0x12/0xff,goto_table:3
write_metadata:0/0xff
write_actions(output:1)
write_actions(set_field:80->tcp_dst,output:2),goto_table:1
write_actions(group:3)
clear_actions
clear_actions,goto_table:4
clear_actions,write_actions(output:9)
meter:1,output:1,clear_actions,write_actions(output:2),write_metadata:5/7,goto_table:9
";

/// Whole lines.
const FLOWS: &str = "
actions=drop
action=output:1
table=3,actions=output:1
table=254,priority=1,ip,actions=drop
cookie=0x1234,ip,actions=drop
cookie=7,idle_timeout=5,hard_timeout=65535,actions=normal
idle_timeout=10 hard_timeout=20 priority=3 actions=drop
send_flow_rem,actions=drop
check_overlap,ip,actions=drop
reset_counts,no_packet_counts,no_byte_counts,actions=drop
send_flow_rem check_overlap reset_counts no_packet_counts no_byte_counts actions=output:1
cookie=0x1, duration=3.5s, table=2, n_packets=4, n_bytes=5, idle_timeout=6, priority=7,ip \
actions=output:8
";

fn flow_lines() -> Vec<String> {
    let lines = |text: &'static str| text.lines().filter(|line| !line.is_empty());
    let matches = lines(MATCHES).map(|m| format!("{m},actions=output:1"));
    let actions = lines(ACTIONS).map(|line| {
        let (actions, m) = line.split_once('|').unwrap_or((line, "tcp,dl_vlan=3"));
        format!("{m},actions={actions}")
    });
    matches
        .chain(actions)
        .chain(lines(FLOWS).map(Into::into))
        .collect()
}

/// Our reading as a frame, under the xid that Open vSwitch gives the nth line.
fn our_frame(version: Version, line: &str, n: usize) -> Frame {
    let flow = parse_flow_mod_as(version, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let xid = Xid(u32::try_from(n + 1).unwrap());
    encode(version, xid, &Message::FlowMod(flow)).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn flows_are_read_alike(version: Version, protocol: &str, lines: &[String]) {
    let theirs = ovs::run(
        &["-O", protocol, "parse-flows", "-"],
        lines.join("\n").as_bytes(),
    );
    let theirs: Vec<&str> = theirs
        .lines()
        .filter(|line| line.starts_with("OFPT_"))
        .collect();
    assert_eq!(
        theirs.len(),
        lines.len(),
        "every line is one of Open vSwitch's own"
    );
    let frames: Vec<Frame> = lines
        .iter()
        .enumerate()
        .map(|(n, line)| our_frame(version, line, n))
        .collect();
    let refs: Vec<&Frame> = frames.iter().collect();
    let ours_by_ovs = ovs::prints(&refs);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(
            ours_by_ovs[n], theirs[n],
            "{line}: our bytes in Open vSwitch's words"
        );
        assert_eq!(
            print(&frames[n]),
            theirs[n],
            "{line}: our bytes in our words"
        );
    }
}

#[test]
fn flows_are_read_as_ovs_ofctl_reads_them() {
    let lines = flow_lines();
    assert!(lines.len() >= 150, "{}", lines.len());
    flows_are_read_alike(Version::V13, "OpenFlow13", &lines);
}

/// The same lines, as far as both programs can express them in an earlier version. Open vSwitch has
/// numbers of its own for fields of 1.3. In 1.1 it sets some fields by its own actions, and the
/// port of TCP by the action for any transport.
#[test]
fn flows_of_1_1_and_1_2_are_read_as_ovs_ofctl_reads_them() {
    let cases = [
        (Version::V11, "OpenFlow11", 149),
        (Version::V12, "OpenFlow12", 130),
    ];
    for (version, protocol, least) in cases {
        let mut lines = flow_lines();
        lines.retain(|line| {
            let said = ovs::run(&["-O", protocol, "parse-flow", line], &[]);
            let flow = parse_flow_mod_as(version, line).map(Message::FlowMod);
            let ours = flow.map(|message| encode(version, Xid(0), &message));
            // Open vSwitch leaves out fields that the form of a match in 1.1 cannot express, which
            // we write as OXM.
            let is_in_form = |frame: &Frame| frame.bytes()[48..50] != [0, 1];
            let is_same = |frame: &Frame| version == Version::V12 || is_in_form(frame);
            let is_said = said.contains("OFPT_FLOW_MOD") && !said.contains("load:");
            is_said && matches!(ours, Ok(Ok(frame)) if is_same(&frame))
        });
        assert!(lines.len() >= least, "{version}: {}", lines.len());
        flows_are_read_alike(version, protocol, &lines);
    }
}

/// In 1.1 alone a modification that matches no cookie adds the entry that is not there, with its
/// cookie.
#[test]
fn a_modification_prints_the_cookie_that_it_may_set() {
    for (version, has_cookie) in [(Version::V11, true), (Version::V12, false)] {
        let mut flow = parse_flow_mod("ip,actions=drop").expect("an entry");
        (flow.command, flow.cookie) = (FlowModCommand::Modify, Cookie(5));
        let frame = encode(version, Xid(1), &Message::FlowMod(flow)).expect("both have it");
        let words = print(&frame);
        assert_eq!(ovs::prints(&[&frame]), std::slice::from_ref(&words));
        assert_eq!(words.contains("cookie:0x5"), has_cookie, "{words}");
    }
}

/// `parse-flows` only adds. For the other commands, our bytes are compared in Open vSwitch's words.
#[test]
fn commands_read_as_written() {
    let cases = [
        (
            "add table=2,in_port=1,actions=drop",
            "ADD table:2 in_port=1 actions=drop",
        ),
        (
            "modify table=1,ip,actions=output:1",
            "MOD table:1 ip actions=output:1",
        ),
        ("modify ip,actions=output:1", "MOD ip actions=output:1"),
        (
            "modify_strict priority=4,actions=drop",
            "MOD_STRICT priority=4 actions=drop",
        ),
        (
            "modify cookie=0x10/-1,actions=drop",
            "MOD cookie:0x10/0xffffffffffffffff actions=drop",
        ),
        ("delete", "DEL table:255 actions=drop"),
        ("delete ip", "DEL table:255 ip actions=drop"),
        ("delete table=1", "DEL table:1 actions=drop"),
        (
            "delete cookie=0x5/0xff",
            "DEL table:255 cookie:0x5/0xff actions=drop",
        ),
        ("delete out_port=3", "DEL table:255 out_port:3 actions=drop"),
        (
            "delete out_port=LOCAL,table=2",
            "DEL table:2 out_port:LOCAL actions=drop",
        ),
        (
            "delete_strict priority=9,arp",
            "DEL_STRICT table:255 priority=9,arp actions=drop",
        ),
        (
            "in_port=0x10,actions=output:0x5",
            "ADD in_port=16 actions=output:5",
        ),
        (
            "actions=apply_actions(output:1),goto_table:2",
            "ADD actions=output:1,goto_table:2",
        ),
    ];
    for (line, words) in cases {
        let frame = our_frame(Version::V13, line, 0);
        let expected = format!("OFPT_FLOW_MOD (OF1.3) (xid=0x1): {words}");
        assert_eq!(common::ovs::prints(&[&frame])[0], expected, "{line}");
        assert_eq!(print(&frame), expected, "{line}");
    }
}

/// Group and meter syntax has no printer of its own in `ovs-ofctl`: our bytes in its words are
/// compared with what the line says.
#[test]
fn groups_and_meters_read_as_written() {
    let groups = [
        (
            "group_id=1,type=select,bucket=weight:2,output:1,bucket=output:2,output:3",
            "ADD group_id=1,type=select,bucket=weight:2,actions=output:1,bucket=actions=output:2,\
             output:3",
        ),
        (
            "group_id=7,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,output:2",
            "ADD group_id=7,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,\
             actions=output:2",
        ),
        ("group_id=2,type=all", "ADD group_id=2,type=all"),
        (
            "group_id=3 type=indirect bucket=actions=set_field:10.0.0.1->ip_dst,output:LOCAL",
            "ADD group_id=3,type=indirect,bucket=actions=set_field:10.0.0.1->ip_dst,LOCAL",
        ),
        (
            "modify group_id=4,type=all,bucket=output:1",
            "MOD group_id=4,type=all,bucket=actions=output:1",
        ),
        ("delete group_id=all", "DEL group_id=4294967292,type=all"),
        ("delete group_id=9", "DEL group_id=9,type=all"),
    ];
    for (line, words) in groups {
        let group = parse_group_mod(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let frame = encode(Version::V13, Xid(1), &Message::GroupMod(group)).unwrap();
        let expected = format!("OFPT_GROUP_MOD (OF1.3) (xid=0x1):\n {words}");
        assert_eq!(ovs::prints(&[&frame])[0], expected, "{line}");
        assert_eq!(print(&frame), expected, "{line}");
    }
    let meters = [
        (
            "meter=1,kbps,bands=type=drop,rate=1000",
            "ADD meter=1 kbps bands=\ntype=drop rate=1000",
        ),
        (
            "meter=2,pktps,burst,stats,bands=type=drop,rate=10,burst_size=5",
            "ADD meter=2 pktps burst stats bands=\ntype=drop rate=10 burst_size=5",
        ),
        (
            "meter=3 kbps bands=type=dscp_remark,rate=1,prec_level=2,type=drop,rate=9",
            "ADD meter=3 kbps bands=\ntype=dscp_remark rate=1 prec_level=2\ntype=drop rate=9",
        ),
        ("delete meter=all", "DEL meter=all bands="),
    ];
    for (line, words) in meters {
        let meter = parse_meter_mod(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let frame = encode(Version::V13, Xid(1), &Message::MeterMod(meter)).unwrap();
        let expected = format!("OFPT_METER_MOD (OF1.3) (xid=0x1): {words}");
        assert_eq!(ovs::prints(&[&frame])[0], expected, "{line}");
        assert_eq!(print(&frame), expected, "{line}");
    }
}

/// A person sees the whole line of an error: the column, the text there, and what to write.
#[test]
fn errors_name_the_column_what_is_there_and_what_to_write() {
    let error = |text: &str| parse_flow_mod(text).unwrap_err().to_string();
    let cases = [
        (
            "tcp,nw_dst=10.0.0.256,actions=drop",
            "column 12: '10.0.0.256' found, write an address",
        ),
        (
            "tcp,nw_dts=10.0.0.1,actions=drop",
            "column 5: 'nw_dts' found, write a field such as",
        ),
        (
            "ip,tp_dst=80,actions=drop",
            "column 4: 'tp_dst' found, write tcp, udp or sctp too",
        ),
        (
            "dl_src=02:00:00:00:00:01,nw_src=10.0.0.1,actions=drop",
            "column 26: 'nw_src' found, write ip too: nw_src is a field of it",
        ),
        (
            "priority=65536,actions=drop",
            "write priority=NUMBER, at most 65535",
        ),
        ("tcp", "column 4: the text ends, write actions="),
        (
            "actions=fly",
            "column 9: 'fly' found, write an action such as output:2",
        ),
        (
            "actions=output:1,set_field:1->eth_dts",
            "column 28: '1->eth_dts' found, write set_field",
        ),
        (
            "actions=write_actions(goto_table:1)",
            "column 23: 'goto_table' found, write actions only",
        ),
        (
            "tp_src=010,tcp,actions=drop",
            "column 8: '010' found, write a number",
        ),
        (
            "ip,nw_proto=6/7,actions=drop",
            "write no mask: nw_proto is matched whole",
        ),
        ("table=255,actions=drop", "write table=0 to table=254"),
        (
            "cookie=1/2,actions=drop",
            "write cookie=NUMBER for a flow that is added",
        ),
        ("tcp,nw_proto=17,actions=drop", "write nw_proto once"),
        ("actions=enqueue:1:2", "write set_queue:QUEUE,output:PORT"),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever the text, there is an answer; and what is read has a text that reads the same.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z_=:,.()0-9/>\\- \nA-FO]{0,80}") {
        let _ = (parse_actions(&text), parse_match(&text), parse_group_mod(&text));
        let _ = (parse_meter_mod(&text), parse_message(&text));
        if let Ok(flow) = parse_flow_mod(&text) {
            prop_assert!(flow.instructions.len() <= 7);
        }
    }

    #[test]
    fn a_line_with_one_byte_changed_is_read_or_refused(
        line in prop::sample::select(flow_lines()),
        at in any::<prop::sample::Index>(),
        byte in any::<char>(),
    ) {
        let mut chars: Vec<char> = line.chars().collect();
        let at = at.index(chars.len());
        chars[at] = byte;
        let changed: String = chars.into_iter().collect();
        if let Ok(flow) = parse_flow_mod(&changed) {
            let message = Message::FlowMod(flow);
            if let Ok(frame) = encode(Version::V13, Xid(0), &message) {
                let (_, _, read) = parse_message(&openflow::text::print_exact(&frame)).unwrap();
                prop_assert_eq!(read, message);
            }
        }
    }
}
