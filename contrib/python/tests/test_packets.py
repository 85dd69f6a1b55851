"""Fields of packets, and of what hosts send in place of packets."""

import random
import unittest

from auster import Packet, Place
from auster.packets import place

DST, SRC = bytes.fromhex("0a0000000002"), bytes.fromhex("0a0000000001")
HOST_2, HOST_1 = DST.hex(":"), SRC.hex(":")
TAG = bytes.fromhex("8100a064")
IP = bytes([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
UDP = bytes.fromhex("0044 0043 000c 0000") + b"dhcp"
ARP = bytes.fromhex("0001 0800 0604 0001") + SRC + bytes([10, 0, 0, 1])
ARP += bytes(6) + bytes([10, 0, 0, 9])
FIELDS = [
    "eth_dst", "eth_src", "eth_type", "vlan", "is_group", "ip_proto", "ipv4_src", "ipv4_dst",
    "tcp_src", "tcp_dst", "udp_src", "udp_dst", "udp_payload", "arp_op", "arp_sha", "arp_spa",
    "arp_tha", "arp_tpa",
]


class Packets(unittest.TestCase):
    def test_udp_with_and_without_a_tag(self):
        for tags, vlan in ((b"", None), (TAG, 100), (TAG + bytes.fromhex("81000001"), 100)):
            packet = Packet(DST + SRC + tags + b"\x08\0" + IP + UDP)
            self.assertEqual((packet.eth_dst, packet.eth_src), (HOST_2, HOST_1))
            self.assertEqual((packet.eth_type, packet.vlan, packet.is_group), (0x0800, vlan, False))
            self.assertEqual((packet.ipv4_src, packet.ipv4_dst), ("10.0.0.1", "10.0.0.2"))
            self.assertEqual((packet.ip_proto, packet.udp_src, packet.udp_dst), (17, 68, 67))
            self.assertEqual(packet.udp_payload, b"dhcp")
            self.assertEqual((packet.tcp_src, packet.arp_op), (None, None))

    def test_ip_options_and_fragments(self):
        options = bytes([0x46]) + IP[1:] + bytes(4)
        self.assertEqual(Packet(DST + SRC + b"\x08\0" + options + UDP).udp_dst, 67)
        fragment = IP[:6] + b"\0\1" + IP[8:]
        self.assertIsNone(Packet(DST + SRC + b"\x08\0" + fragment + UDP).udp_dst)
        tcp = IP[:9] + b"\6" + IP[10:]
        self.assertEqual(Packet(DST + SRC + b"\x08\0" + tcp + UDP).tcp_dst, 67)

    def test_arp_and_its_answer(self):
        question = Packet(b"\xff" * 6 + SRC + TAG + b"\x08\6" + ARP)
        self.assertTrue(question.is_group)
        self.assertEqual((question.arp_op, question.arp_spa), (1, "10.0.0.1"))
        answer = Packet(question.arp_answer("0a:00:00:00:00:09"))
        self.assertEqual((answer.eth_dst, answer.vlan), (HOST_1, 100))
        self.assertEqual((answer.arp_op, answer.arp_sha), (2, "0a:00:00:00:00:09"))
        self.assertEqual((answer.arp_spa, answer.arp_tpa), ("10.0.0.9", "10.0.0.1"))
        self.assertEqual((answer.arp_tha, answer.eth_src), (HOST_1, "0a:00:00:00:00:09"))
        self.assertEqual(len(answer.data), len(question.data))
        self.assertIsNone(answer.arp_answer("0a:00:00:00:00:09"))

    def test_nothing_that_a_host_sends_raises(self):
        chance = random.Random(1)
        whole = [DST + SRC + TAG * tags + b"\x08\0" + IP + UDP for tags in (0, 1, 4, 5, 9)]
        whole += [DST + SRC + TAG + b"\x08\6" + ARP]
        packets = [data[:size] for data in whole for size in range(len(data) + 1)]
        for _ in range(2000):
            data = bytearray(chance.choice(whole))
            for _ in range(chance.randrange(4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            packets.append(bytes(data[:chance.randrange(len(data) + 1)]))
        for data in packets:
            packet = Packet(data)
            for field in FIELDS:
                getattr(packet, field)
            packet.arp_answer("0a:00:00:00:00:09")
            repr(packet)

    def test_what_is_cut_short_has_its_fields_or_none(self):
        for inner in (b"\x08\0" + IP + UDP, b"\x08\6" + ARP):
            data = DST + SRC + TAG + inner
            whole = Packet(data)
            for size in range(len(data)):
                packet = Packet(data[:size])
                for field in FIELDS:
                    value = getattr(packet, field)
                    if field == "udp_payload":
                        self.assertTrue(whole.udp_payload.startswith(value))
                    elif field != "is_group":
                        self.assertIn(value, (None, getattr(whole, field)), f"{field} of {size}")
                # What it answers is whole, or nothing.
                self.assertIn(packet.arp_answer(HOST_1), (None, whole.arp_answer(HOST_1)))

    def test_headers_that_cannot_be(self):
        short = bytes([0x44]) + IP[1:]
        self.assertIsNone(Packet(DST + SRC + b"\x08\0" + short + UDP).udp_dst)
        self.assertIsNone(Packet(DST + SRC + b"\x08\0" + bytes([0x65]) + IP[1:]).ipv4_src)
        self.assertEqual(Packet(DST + SRC + TAG * 9 + b"\x08\0" + IP).eth_type, 0x8100)
        self.assertIsNone(Packet(DST + SRC + b"\x08\6\0\2" + ARP[2:]).arp_op)

    def test_a_field_is_read_once(self):
        packet = Packet(DST + SRC + b"\x08\0" + IP + UDP)
        for _ in range(2):
            self.assertEqual((packet.eth_src, packet.arp_op), (HOST_1, None))
            self.assertEqual((vars(packet)["eth_src"], vars(packet)["arp_op"]), (HOST_1, None))

    def test_documents(self):
        at = "00000000000000a1:4294967294"
        packet = Packet.of({"data": "AAEC", "at": at, "bytes": 1500, "tap": "t"})
        self.assertEqual((packet.data, packet.size, packet.tap), (b"\0\1\2", 1500, "t"))
        self.assertEqual((packet.at, packet.switch, packet.port), (at, at[:16], 4294967294))
        empty = Packet.of({"data": 5, "at": "nowhere", "bytes": "many"})
        self.assertEqual((empty.data, empty.at, empty.port, empty.switch), (b"", "", 0, ""))
        self.assertIsInstance(place("0000000000000001:1"), Place)
        self.assertEqual(place("0000000000000001:LOCAL").port, 0xFFFFFFFE)
        for text in ("0a:00:00:00:00:01", "0000000000000001", "1:2", 7):
            self.assertNotIsInstance(place(text), Place)


if __name__ == "__main__":
    unittest.main()
