"""The client against a small server of our own: what it asks, and what it makes of the answers."""

import base64
import os
import select
import socket
import tempfile
import unittest

import auster
from auster import network, stream
from tests.fake import PATIENCE_S, Fake


def packet(tap, data=b"", at="0000000000000001:2", seq=1):
    document = {"event": "packet_in", "seq": seq, "tap": tap, "at": at, "bytes": len(data)}
    return {**document, "data": base64.b64encode(data).decode()}


def refusal(*pointers):
    errors = [{"pointer": pointer, "detail": "is wrong"} for pointer in pointers]
    return (422, {"title": "Unprocessable", "detail": "no", "errors": errors})


class FakeTest(unittest.TestCase):
    def setUp(self):
        self.fake = Fake()
        self.addCleanup(self.fake.close)
        self.net = auster.Network(self.fake.url, token="secret")
        self.addCleanup(self.net.close)


class Requests(FakeTest):
    def test_requests_share_a_connection_and_have_the_token(self):
        for _ in range(5):
            self.net.topology()
        self.assertEqual(len(self.fake.connections), 1)
        self.assertEqual(self.fake.asked[0][3]["Authorization"], "Bearer secret")

    def test_a_connection_that_auster_has_closed_is_opened_again_and_nothing_is_sent_twice(self):
        self.fake.drop = True
        for _ in range(20):
            self.net.send(at=["0000000000000001:1"], data=b"x")
            # The end may take its time on the way here.
            select.select([self.net._api._kept.sock], [], [], PATIENCE_S)
        self.assertEqual(len(self.fake.of("POST")), 20)
        self.assertEqual(len(self.fake.connections), 20)

    def test_packets_whose_answer_is_lost_are_not_sent_again_and_entries_are(self):
        self.fake.unanswered = (2, 4)
        self.net.topology()
        with self.assertRaises(auster.Unreachable):
            self.net.send(at=["0000000000000001:1"], data=b"x")
        self.net.topology()
        self.net.flows["a"]["b"] = {}
        asked = [method for method, *_ in self.fake.asked]
        self.assertEqual(asked, ["GET", "POST", "GET", "PUT", "PUT"])

    def test_a_problem_has_the_fields_of_the_document(self):
        self.fake.answers["PUT", "/v1/flows/a/b"] = refusal("/match")
        with self.assertRaises(auster.Problem) as caught:
            self.net.flows["a"]["b"] = {}
        problem = caught.exception
        self.assertEqual((problem.status, problem.detail), (422, "no"))
        self.assertEqual(problem.errors, [{"pointer": "/match", "detail": "is wrong"}])
        self.assertIn("/match: is wrong", str(problem))

    def test_a_problem_of_the_whole_body_is_said_once(self):
        whole = {"detail": "kinds: no", "errors": [{"pointer": "", "detail": "kinds: no"}]}
        some = {"detail": "no", "errors": [{"pointer": "", "detail": "switch is missing"}]}
        for document, said in ((whole, "400 kinds: no"), (some, "400 no; switch is missing")):
            self.assertEqual(str(auster.Problem(400, document)), said)

    def test_an_answer_that_is_no_document_is_a_problem_too(self):
        self.fake.answers["GET", "/v1/x"] = (502, "gateway")
        with self.assertRaises(auster.Problem) as caught:
            self.net.request("GET", "/v1/x")
        self.assertEqual((caught.exception.status, caught.exception.errors), (502, []))

    def test_nobody_at_the_address_is_unreachable_however_often_it_is_asked(self):
        self.fake.drop = True
        self.net.topology()
        # The connection that was kept ends with the server.
        select.select([self.net._api._kept.sock], [], [], PATIENCE_S)
        self.fake.close()
        for _ in range(3):
            with self.assertRaises(auster.Unreachable):
                self.net.topology()

    def test_hosts_are_read_page_by_page(self):
        pages = [{"hosts": [1, 2], "next": "b"}, {"hosts": [3], "next": None}]
        self.fake.answers["GET", "/v1/hosts"] = lambda _: (200, pages.pop(0))
        self.assertEqual(self.net.hosts(vlan=3), [1, 2, 3])
        self.assertEqual(self.fake.asked[1][1], "/v1/hosts?vlan=3&limit=1000&after=b")

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = Fake(unix=os.path.join(folder, "api"))
            self.addCleanup(fake.close)
            net = auster.Network(fake.url)
            self.assertEqual(net.topology()["seq"], 10)
            net.close()

    def test_addresses_and_tokens_that_cannot_be(self):
        for url in ("ftp://a", "http://", "http://a/b"):
            with self.assertRaises(ValueError):
                auster.Network(url)
        with self.assertRaises(ValueError):
            auster.Network("localhost:8080", token="two\nlines")


class Changes(FakeTest):
    def test_entries_are_a_mapping(self):
        self.fake.answers["GET", "/v1/flows/a/b"] = (200, {"priority": 3})
        self.fake.answers["GET", "/v1/flows/a/c"] = (404, {})
        self.fake.answers["DELETE", "/v1/flows/a/c"] = (404, {})
        flows = self.net.flows["a"]
        flows["b"] = {"priority": 3}
        self.assertEqual(flows["b"], {"priority": 3})
        self.assertIsNone(flows.get("c"))
        self.fake.answers["GET", "/v1/flows/a"] = (200, {"flows": [{"name": "b"}]})
        self.assertEqual([name for name in flows], ["b"])
        with self.assertRaises(KeyError):
            del flows["c"]
        flows.update({"b": None, "d": {}})
        del self.net.flows["a"]
        asked = [(method, path, body) for method, path, body, _ in self.fake.asked]
        self.assertEqual(asked, [
            ("PUT", "/v1/flows/a/b", {"priority": 3}),
            ("GET", "/v1/flows/a/b", None),
            ("GET", "/v1/flows/a/c", None),
            ("GET", "/v1/flows/a?limit=1000", None),
            ("DELETE", "/v1/flows/a/c", None),
            ("PATCH", "/v1/flows/a", {"b": None, "d": {}}),
            ("DELETE", "/v1/flows/a", None),
        ])

    def test_an_entry_that_was_read_cannot_be_changed_in_vain(self):
        self.fake.answers["GET", "/v1/flows/a/b"] = (200, {"actions": "drop"})
        self.fake.answers["GET", "/v1/flows/a"] = (200, {"flows": [{"name": "b", "actions": "x"}]})
        flows = self.net.flows["a"]
        for entry in (flows["b"], flows.all()["b"]):
            for change in (
                lambda: entry.__setitem__("actions", "output:1"),
                lambda: entry.update(actions="output:1"),
                lambda: entry.pop("actions"),
                entry.clear,
            ):
                with self.assertRaisesRegex(TypeError, "is a copy"):
                    change()
        flows["b"] = {**flows["b"], "actions": "output:1"}
        self.assertEqual(self.fake.of("PUT")[0][2], {"actions": "output:1"})

    def test_owners_are_listed(self):
        pages = [
            {"flows": [{"owner": "a", "name": "x"}, {"owner": "a", "name": "y"}], "next": "a/y"},
            {"flows": [{"owner": "b", "name": "x"}], "next": None},
        ]
        self.fake.answers["GET", "/v1/flows"] = lambda _: (200, pages.pop(0))
        self.assertEqual(list(self.net.flows), ["a", "b"])

    def test_a_batch_that_is_too_much_goes_in_parts(self):
        few = lambda body: (200, {}) if len(body) <= 2 else (413, {"detail": "at most 2"})  # noqa: E731
        self.fake.answers["PATCH", "/v1/flows/a"] = few
        with self.net.batch():
            for name in "vwxyz":
                self.net.flows["a"][name] = {}
        taken = [body for _, _, body, _ in self.fake.of("PATCH") if len(body) <= 2]
        self.assertEqual([name for body in taken for name in body], list("vwxyz"))

    def test_a_batch_is_one_request_of_entries_and_then_one_of_packets(self):
        with self.net.batch():
            self.net.send(at=["0000000000000001:1"], data=b"abc")
            self.net.flows["a"]["x"] = {"priority": 1}
            self.net.flows["a"]["y"] = {}
            with self.net.batch():
                del self.net.flows["a"]["y"]
            self.net.send(switch="0000000000000001", actions="flood", in_port=3, data=b"d")
            self.assertEqual(self.fake.asked, [])
        asked = [(method, path, body) for method, path, body, _ in self.fake.asked]
        self.assertEqual(asked, [
            ("PATCH", "/v1/flows/a", {"x": {"priority": 1}, "y": None}),
            ("POST", "/v1/packets", [
                {"data": "YWJj", "at": ["0000000000000001:1"]},
                {"data": "ZA==", "switch": "0000000000000001", "actions": "flood", "in_port": 3},
            ]),
        ])

    def test_a_batch_that_raises_sends_nothing(self):
        with self.assertRaises(ZeroDivisionError), self.net.batch():
            self.net.send(at=["0000000000000001:1"], data=b"abc")
            1 / 0
        self.assertEqual(self.fake.asked, [])

    def test_what_is_too_much_for_one_request_is_several(self):
        with self.net.batch():
            for n in range(600):
                self.net.flows["a"][str(n)] = {}
            for _ in range(20):
                self.net.send(at=["0000000000000001:1"], data=bytes(60_000))
        patches = [len(body) for _, _, body, _ in self.fake.of("PATCH")]
        self.assertEqual(patches, [256, 256, 88])
        self.assertEqual([len(body) for _, _, body, _ in self.fake.of("POST")], [6, 6, 6, 2])

    def test_what_is_wrong_does_not_keep_the_others(self):
        self.fake.answers["PATCH", "/v1/flows/a"] = (
            lambda body: refusal("/x/match") if "x" in body else (200, {})
        )
        self.fake.answers["POST", "/v1/packets"] = (
            lambda body: refusal("/1/at/0") if len(body) == 3 else (202, {"sent": len(body)})
        )
        with self.assertRaises(auster.Problem), self.net.batch():
            self.net.flows["a"].update({"w": {}, "x": {}})
            for data in (b"0", b"1", b"2"):
                self.net.send(at=["0000000000000001:1"], data=data)
        self.assertEqual([body for _, _, body, _ in self.fake.of("PATCH")], [
            {"w": {}, "x": {}}, {"w": {}},
        ])
        last = self.fake.of("POST")[-1][2]
        self.assertEqual([packet["data"] for packet in last], ["MA==", "Mg=="])


class Streams(FakeTest):
    def setUp(self):
        super().setUp()
        self.seen = []
        wait = network.FIRST_WAIT_S
        network.FIRST_WAIT_S = 0.001
        self.addCleanup(setattr, network, "FIRST_WAIT_S", wait)

    def test_events_go_on_behind_the_last_one_that_was_seen(self):
        up = {"event": "link_up", "from": "0000000000000001:2", "to": "0000000000000002:1"}
        self.fake.streams["/v1/events"] = [
            [{**up, "seq": 11}], [{**up, "seq": 12}, {"event": "stop", "seq": 14}],
        ]

        @self.net.on("link_up")
        def link(event):
            self.seen.append((event.seq, event.from_.switch, event.to.port))

        self.net.on("stop")(lambda _: self.net.stop())
        self.net.on("error")(lambda _: None)
        self.net.run()
        self.assertEqual(self.seen, [(11, "0" * 15 + "1", 1), (12, "0" * 15 + "1", 1)])
        paths = [path for _, path, _, _ in self.fake.of("GET", "/v1/events")]
        self.assertEqual(paths, [
            f"/v1/events?follow=true&since={n}&kinds=link_up%2Cstop" for n in (10, 11)
        ])

    def test_an_interrupt_ends_it_as_a_stop_does(self):
        self.fake.streams["/v1/events"] = [[{"event": "stop", "seq": 11}]]
        self.net.tap("a", "b")

        @self.net.on("stop")
        def stop(_):
            self.seen.append("stop")
            raise KeyboardInterrupt

        self.net.run()
        self.assertEqual(self.seen, ["stop"])
        self.assertEqual(len(self.fake.of("DELETE", "/v1/taps/a/b")), 1)

    def test_a_reset_reads_the_topology_and_passes_over_what_is_in_it(self):
        self.fake.streams["/v1/events"] = [[
            {"event": "reset", "seq": 40, "reason": "too old"},
            {"event": "port_up", "seq": 41},
        ], [{"event": "port_up", "seq": 50}, {"event": "port_up", "seq": 51}]]
        numbers = [10, 50]
        self.fake.answers["GET", "/v1/topology"] = lambda _: (200, {"seq": numbers.pop(0)})

        @self.net.on("reset")
        def again(event):
            self.seen.append((event.reason, event.topology["seq"]))

        @self.net.on("port_up")
        def up(event):
            self.seen.append(event.seq)
            self.net.stop()

        self.net.on("error")(lambda _: None)
        self.net.run()
        self.assertEqual(self.seen, [("too old", 50), 51])

    def test_a_topology_that_was_read_before_is_where_events_begin(self):
        self.fake.streams["/v1/events"] = [[{"event": "a", "seq": 11}]]
        self.net.on("*")(lambda event: self.net.stop())
        self.net.topology()
        self.net.run()
        self.assertEqual(len(self.fake.of("GET", "/v1/topology")), 1)
        self.assertEqual(self.fake.of("GET", "/v1/events")[0][1], "/v1/events?follow=true&since=10")

    def test_packets_go_to_the_handlers_of_their_tap_and_answers_go_together(self):
        self.fake.streams["/v1/taps/a/packets"] = [
            [packet("x", b"1"), packet("y", b"2", seq=2), {"event": "shed", "count": 7}],
            [{"event": "reset", "seq": 7}, packet("x", b"3", "0000000000000001:9", seq=8)],
        ]
        x = self.net.tap("a", "x", match="arp", copy=False)
        y = self.net.tap("a")
        self.assertEqual(y.name, "tap2")

        @self.net.on("packet_in", tap=x)
        def of_x(packet):
            self.seen.append((packet.tap, packet.data, packet.port))
            self.net.send(at=[packet.at], data=packet.data)
            self.net.send(at=[packet.at], data=packet.data)
            if packet.port == 9:
                self.net.stop()

        self.net.on("packet_in")(lambda packet: self.seen.append(packet.data))
        self.net.on("shed")(lambda event: self.seen.append((event.owner, event.count)))
        self.net.on("error")(lambda _: None)
        self.net.run()
        paths = [path for _, path, _, _ in self.fake.of("GET", "/v1/taps/")]
        self.assertEqual(paths, ["/v1/taps/a/packets", "/v1/taps/a/packets?since=2"])
        # `y` has no handler of its own, and the server knows it as `y`.
        self.assertEqual(self.seen, [
            ("x", b"1", 2), b"1", b"2", ("a", 7), ("x", b"3", 9), b"3",
        ])
        self.assertEqual([len(body) for _, _, body, _ in self.fake.of("POST")], [2, 2])
        # Set at once, again before the second stream, and taken away in the end.
        self.assertEqual(len(self.fake.of("PUT", "/v1/taps/a/x")), 2)
        self.assertEqual(self.fake.of("PUT")[0][2], {"match": "arp", "copy": False})
        self.assertEqual(len(self.fake.of("DELETE", "/v1/taps/a/")), 2)

    def test_a_program_asks_that_what_it_has_set_goes_with_it(self):
        self.fake.streams["/v1/taps/a/packets"] = [[packet("x", b"1")], [packet("x", b"2", seq=2)]]
        net = auster.Network(self.fake.url, on_disconnect="remove")

        @net.on("packet_in", tap=net.tap("a", "x"))
        def seen(packet):
            if packet.data == b"2":
                net.stop()

        net.on("error")(lambda _: None)
        net.run()
        paths = [path for _, path, _, _ in self.fake.of("GET", "/v1/taps/")]
        asked = "/v1/taps/a/packets?"
        first, second = "on_disconnect=remove", "since=1&on_disconnect=remove"
        self.assertEqual(paths, [asked + first, asked + second])

    def test_an_error_of_a_handler_is_reported_and_a_fault_of_it_ends_the_run(self):
        self.fake.streams["/v1/events"] = [[{"event": "a", "seq": 11}, {"event": "b", "seq": 12}]]
        self.fake.answers["PUT", "/v1/flows/a/b"] = refusal("/match")

        @self.net.on("a")
        def refused(event):
            # Beside the batch, for an answer at once.
            self.net.request("PUT", "/v1/flows/a/b", {})

        @self.net.on("b")
        def fault(event):
            raise KeyError("b")

        self.net.on("error")(self.seen.append)
        with self.assertRaises(KeyError):
            self.net.run()
        self.assertEqual([error.status for error in self.seen], [422])

    def test_a_refused_stream_ends_the_run_and_a_busy_server_does_not(self):
        answers = [(503, {}), (401, {"detail": "who?"})]
        self.fake.answers["GET", "/v1/events"] = lambda _: answers.pop(0)
        self.net.on("*")(lambda _: None)
        self.net.on("error")(self.seen.append)
        with self.assertRaises(auster.Problem) as caught:
            self.net.run()
        self.assertEqual((caught.exception.status, caught.exception.detail), (401, "who?"))
        self.assertEqual([error.status for error in self.seen], [503])

    def test_a_handler_that_would_never_be_called_is_refused(self):
        def handler(_):
            pass

        tap = self.net.tap("lesson", "all")
        for wrong in (lambda: self.net.on(handler), lambda: self.net.on(),
                      lambda: self.net.on("packet_in", tap="lesson")):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaises(ValueError):
            self.net.on("switch_up", tap=tap)

    def test_a_kind_that_auster_does_not_have_is_named(self):
        told = {"detail": "kinds: 'link_upp' is no kind of event; did you mean link_up?"}
        self.fake.answers["GET", "/v1/events"] = (400, told)
        self.net.on("link_down", "link_upp")(lambda _: None)
        with self.assertRaises(ValueError) as caught:
            self.net.run()
        self.assertIn('@net.on("link_upp"): 400 kinds', str(caught.exception))
        self.assertIn("did you mean link_up?", str(caught.exception))

    def test_a_stream_that_says_nothing_is_opened_again(self):
        silence = network.SILENCE_MAX_S, stream.SILENCE_MAX_S
        network.SILENCE_MAX_S = stream.SILENCE_MAX_S = 0.01
        self.addCleanup(lambda: setattr(network, "SILENCE_MAX_S", silence[0]))
        self.addCleanup(lambda: setattr(stream, "SILENCE_MAX_S", silence[1]))
        self.fake.streams["/v1/events"] = []
        self.net.on("*")(lambda _: None)

        @self.net.on("error")
        def error(what):
            self.seen.append(str(what))
            if len(self.seen) == 2:
                self.net.stop()

        self.net.run()
        self.assertEqual(self.seen, ["no word for 0 s"] * 2)
        self.assertGreaterEqual(len(self.fake.of("GET", "/v1/events")), 2)

    def test_a_line_that_is_no_document_ends_a_stream_and_empty_lines_are_none(self):
        for lines, found in (
            (b'{"n":1}\n\n{"n":2}\n \n7\n{"n":', [{"n": 1}, {"n": 2}]),
            (b"\n", []),
            (b'{"n":1}\nx\n{"n":2}\n', None),
            (b'{"n":1}\n[{"n":\n', None),
            (b'{"n":1}\nnull\n', None),
        ):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                theirs.sendall(lines)
                read = stream.Stream(ours, b"").read
                if found is None:
                    self.assertRaises(auster.Unreachable, read)
                else:
                    self.assertEqual(read(), found)


if __name__ == "__main__":
    unittest.main()
