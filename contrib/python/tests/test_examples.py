"""Each example as a process of its own, on a real Open vSwitch."""

import re
import subprocess
import sys
import unittest

from tests.real import EXAMPLES, ROOT, Real, arp, frame, ip, mac, tcp, udp, wait_for

S1 = "0000000000000001"


class Usage(unittest.TestCase):
    def test_an_example_without_arguments_says_what_it_takes(self):
        for name in ("captive_portal", "dhcp_snooping", "load_balancer", "topology_picture"):
            words = [sys.executable, f"{EXAMPLES}/{name}.py"]
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={"PYTHONPATH": f"{ROOT}/contrib/python/src"})
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{name}.py URL", done.stdout)
            self.assertNotIn("Traceback", done.stdout)


class LearningSwitch(Real):
    options = ("--forwarding", "off")

    def start(self):
        return self.example("learning_switch.py")

    def test_it_floods_learns_and_leaves_the_rest_to_the_switch(self):
        example = self.start()
        question = arp(1, 2)
        self.until_sent("p12", question, lambda: self.receive("p11", question))
        self.assertIn(question, self.sent("p13"))
        self.assertNotIn(question, self.sent("p11"))
        answer = frame(2, 1, 0x0806, b"answer")
        self.until_sent("p11", answer, lambda: self.receive("p12", answer))
        learnt = f"in_port=2,dl_src={mac(2)},dl_dst={mac(1)}"
        entries = wait_for("an entry", lambda: learnt in self.entries() and self.entries())
        self.assertIn("output:1", entries.partition(learnt)[2].splitlines()[0])
        self.assertNotIn(answer, self.sent("p13"))
        # Packets of the pair pass without the application.
        example.terminate()
        example.wait()
        again = frame(2, 1, 0x0800, b"again")
        self.receive("p12", again)
        self.until_sent("p11", again)


class Firewall(Real):
    bridges = 2

    def test_rules_are_on_each_switch_and_on_those_that_come(self):
        rules = ["telnet=tcp,tp_dst=23", "guests=ip,nw_src=10.9.0.0/16"]
        example = self.example("firewall.py", *rules)
        self.until_said(example, "protected 2 switches")
        for bridge in (1, 2):
            for match in ("tp_dst=23", "nw_src=10.9.0.0/16"):
                wait_for(match, lambda: match in self.entries(bridge))
        # Two hosts that know each other, one of which then asks for what is forbidden.
        hello, back = arp(1, 2), frame(2, 1, 0x0800, b"back")
        self.until_sent("p12", hello, lambda: self.receive("p11", hello))
        self.until_sent("p11", back, lambda: self.receive("p12", back))
        allowed, telnet = (ip(1, 2, 6, tcp(5000, port)) for port in (80, 23))
        self.receive("p11", telnet)
        self.until_sent("p12", allowed, lambda: self.receive("p11", allowed))
        self.receive("p11", telnet)
        last = ip(1, 2, 6, tcp(5001, 80))
        self.until_sent("p12", last, lambda: self.receive("p11", last))
        self.assertNotIn(telnet, self.sent("p12"))
        self.vsctl("set", "bridge", "br2", "other_config:datapath-id=0000000000000003")
        wait_for("the new switch", lambda: "tp_dst=23" in self.entries(2))


class TopologyPicture(Real):
    bridges = 2

    def test_it_shows_switches_hosts_and_links(self):
        picture = self.path("network.svg")
        example = self.example("topology_picture.py", picture)
        self.until_said(example, "2 switches, 0 links")
        self.cable(1, 2)
        self.until_said(example, "2 switches, 1 links")

        def drawn():
            self.receive("p11", arp(1, 2))
            with open(picture) as file:
                return "br1: 1 hosts" in (text := file.read()) and text

        text = wait_for("the host in the picture", drawn)
        self.assertEqual(len(re.findall("<circle", text)), 2)
        self.assertEqual(len(re.findall("<line", text)), 1)


class LoadBalancer(Real):
    def test_clients_are_divided_and_answers_come_from_the_one_address(self):
        servers = [f"{S1}:{port}={mac(port)}=10.0.0.{port}" for port in (2, 3)]
        example = self.example("load_balancer.py", "10.0.0.100", *servers)
        self.until_said(example, "balancing")
        question = arp(1, 100)
        head = bytes.fromhex((mac(1) + "0aaaaaaaaaaa0806").replace(":", ""))

        def answered():
            self.receive("p11", question)
            return [frame for frame in self.sent("p11") if frame.startswith(head)]

        answer = wait_for("an answer", answered)[0]
        self.assertEqual(answer[20:22] + answer[28:32], b"\0\2" + bytes([10, 0, 0, 100]))
        for client, server in ((4, 2), (5, 3)):
            def passed():
                self.receive("p11", ip(client, 100, 6, tcp(5000, 80)))
                found = [frame for frame in self.sent(f"p1{server}") if frame[12:14] == b"\x08\0"]
                return [frame for frame in found if frame[26:30] == bytes([10, 0, 0, client])]

            there = wait_for("a request", passed)[0]
            self.assertEqual(there[30:34], bytes([10, 0, 0, server]))
            self.assertEqual(there[:6].hex(":"), mac(server))

        def returned():
            self.receive("p13", ip(3, 1, 6, tcp(80, 5000)))
            found = [frame for frame in self.sent("p11") if frame[12:14] == b"\x08\0"]
            return [frame for frame in found if frame[26:30] == bytes([10, 0, 0, 100])]

        self.assertEqual(wait_for("an answer", returned)[0][:12].hex(), "0a00000000010aaaaaaaaaaa")


class DhcpSnooping(Real):
    def test_leases_are_seen_and_a_foreign_server_is_closed(self):
        example = self.example("dhcp_snooping.py", f"{S1}:2")
        self.until_said(example, "snooping")
        offer = b"\2\1\6\0" + bytes(12) + bytes([10, 0, 0, 7]) + bytes(8)
        offer += bytes.fromhex(mac(7).replace(":", "")) + bytes(210)

        def seen(port, text):
            self.receive(f"p1{port}", ip(port, 255, 17, udp(67, 68, offer)))
            return any(text in line for line in example.lines)

        wait_for("a lease", lambda: seen(2, f"lease {mac(7)} 10.0.0.7"))
        wait_for("the other", lambda: seen(3, f"nobody knows is at {S1}:3 with {mac(3)}"))
        wait_for("its end", lambda: "in_port=3,tp_src=67" in self.entries().replace("udp,", ""))


class CaptivePortal(Real):
    def test_guests_see_the_portal_until_they_are_let_out(self):
        example = self.example("captive_portal.py", f"{S1}:3={mac(3)}=10.0.0.3", f"{S1}:1")
        self.until_said(example, "closed for 1 guests")
        wait_for("the entry", lambda: "in_port=1 actions=drop" in self.entries())
        hello = arp(2, 1)
        self.until_sent("p11", hello, lambda: self.receive("p12", hello))
        page, other = ip(1, 2, 6, tcp(5000, 80)), ip(1, 2, 6, tcp(5000, 443))
        self.receive("p11", other)

        def of_ip(port):
            return [data for data in self.sent(port) if data[12:14] == b"\x08\0"]

        there = wait_for("the question", lambda: self.receive("p11", page) or of_ip("p13"))[0]
        self.assertEqual(there[:6].hex(":") + there[30:34].hex(), mac(3) + "0a000003")
        self.receive("p13", ip(3, 1, 6, tcp(80, 5000)))
        answer = wait_for("the answer", lambda: of_ip("p11"))[0]
        # It comes from where the guest believes to be.
        self.assertEqual(answer[:12].hex(":"), f"{mac(1)}:{mac(2)}")
        self.assertEqual(answer[26:34].hex(), "0a0000020a000001")
        self.assertEqual(of_ip("p12"), [])

        example.stdin.write(f"{S1}:1\n")
        example.stdin.flush()
        self.until_said(example, "is out")
        for data in (other, page):
            self.until_sent("p12", data, lambda: self.receive("p11", data))


if __name__ == "__main__":
    unittest.main()
