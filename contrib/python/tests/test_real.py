"""The client against the real program and a real Open vSwitch."""

import json
import os
import subprocess
import tempfile
import threading
import time
import unittest

import auster
from tests.real import PATIENCE_S, PROGRAM, Real, arp, mac, wait_for

CONFIG = """listen = ["ptcp:0:127.0.0.1"]
[api]
listen = ["127.0.0.1:0"]
tokens = "tokens"
[api.tls]
private_key = "api-privkey.pem"
certificate = "api-cert.pem"
"""


class Network(Real):
    def running(self):
        """Runs the network in a thread, until the end of the test."""
        thread = threading.Thread(target=self.net.run)
        thread.start()

        def end():
            self.net.stop()
            thread.join(PATIENCE_S)

        self.addCleanup(end)

    def test_events_come_and_go_on_after_a_restart_with_a_reset(self):
        events, resets = [], []
        self.net.on("host_learned", "hosts_learned", "port_down", "switch_up")(events.append)
        self.net.on("reset")(resets.append)
        self.net.on("error")(lambda _: None)
        self.running()

        def seen(kind):
            return [event for event in events if event.event == kind]

        wait_for("a host", lambda: self.receive("p11", arp(1, 2)) or seen("host_learned"))
        hosts = self.net.hosts()
        self.assertEqual([host["mac"] for host in hosts], [mac(1)])
        self.vsctl("set", "interface", "p12", "admin_state=down")
        self.command("ovs-appctl", f"--target={self.path('ovs-vswitchd.ctl')}",
                     "netdev-dummy/set-admin-state", "p12", "down")
        down = wait_for("port_down", lambda: seen("port_down"))[0]
        self.assertEqual((down.port.switch, down.port.port), ("0000000000000001", 2))

        self.assertEqual(resets, [])
        before = events[-1].seq
        self.stop_auster()
        self.start_auster()
        wait_for("a reset", lambda: resets)
        self.assertEqual(resets[0].reason, "too old")
        self.assertGreater(resets[0].topology["seq"], before)

    def test_a_problem_of_the_real_api(self):
        with self.assertRaises(auster.Problem) as caught:
            self.net.request("PUT", "/v1/services/voice", {"proto": "carrier pigeon"})
        self.assertEqual(caught.exception.status, 422)
        self.assertEqual(caught.exception.errors[0]["pointer"], "/proto")
        with self.assertRaises(auster.Problem) as caught:
            self.net.request("GET", "/v1/events?since=x")
        self.assertEqual(caught.exception.status, 400)

    def test_a_connection_may_rest_for_longer_than_auster_keeps_it(self):
        self.net.topology()
        # auster closes it after 10 s.
        sock = self.net._api._kept.sock
        wait_for("its end", lambda: time.sleep(1) or self.net._api._is_stale(self.net._api._kept))
        self.net.topology()
        self.assertIsNot(self.net._api._kept.sock, sock)


class Access(unittest.TestCase):
    def test_tls_and_tokens(self):
        with tempfile.TemporaryDirectory(prefix="auster-python-") as folder:
            with open(os.path.join(folder, "net.toml"), "w") as file:
                file.write(CONFIG)

            def auster_(*words):
                done = subprocess.run([PROGRAM, *words], cwd=folder, check=True, text=True,
                                      stdout=subprocess.PIPE)
                return done.stdout.strip()

            auster_("pki", "init")
            auster_("pki", "controller", "api", "--host", "127.0.0.1")
            token = auster_("api", "token", "add", "a", "--role", "read", "--file", "tokens")
            words = [PROGRAM, "run", "--config", "net.toml", "--json"]
            with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as program:
                self.addCleanup(program.stdout.close)
                self.addCleanup(program.terminate)
                lines = (json.loads(line) for line in program.stdout)
                at = next(line["address"] for line in lines if line["event"] == "serving")
                url, ca = f"https://{at}", os.path.join(folder, "pki/controllerca/cacert.pem")
                self.judge(url, token, ca)
                program.terminate()

    def judge(self, url, token, ca):
        net = auster.Network(url, token=token, ca=ca)
        self.addCleanup(net.close)
        self.assertEqual(net.topology()["switches"], [])
        with self.assertRaises(auster.Problem) as caught:
            net.request("PUT", "/v1/services/voice", {"proto": "udp"})
        self.assertEqual(caught.exception.status, 403)
        # A stream by TLS: from before all events, so that there is one.
        net._seq = 0
        net.on("*", "reset")(lambda _: net.stop())
        net.run()

        net = auster.Network(url, ca=ca)
        with self.assertRaises(auster.Problem) as caught:
            net.topology()
        self.assertEqual(caught.exception.status, 401)
        net.close()
        net = auster.Network(url, token=token)
        with self.assertRaisesRegex(auster.Unreachable, "CERTIFICATE_VERIFY_FAILED"):
            net.topology()


if __name__ == "__main__":
    unittest.main()
