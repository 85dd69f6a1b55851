"""The programs of the tutorial and of the package's page, as they stand there."""

import os
import re
import time
import unittest

from tests.real import ROOT, Real, arp, mac, wait_for
from tests import test_examples


def programs(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)


FIRST, SWITCH, DETOUR = programs("docs/run-python.md")
(README,) = programs("contrib/python/README.md")


class TwentyLines(test_examples.LearningSwitch):
    def start(self):
        return self.text(SWITCH)

    def test_it_is_twenty_lines(self):
        self.assertLessEqual(len([line for line in SWITCH.splitlines() if line.strip()]), 20)


class Programs(Real):
    bridges = 2

    def test_the_first_program_reads_the_network(self):
        wait_for("a host", lambda: self.receive("p11", arp(1, 2)) or self.net.hosts())
        process = self.text(FIRST)
        wait_for("its end", lambda: process.poll() is not None)
        wait_for("its words", lambda: len(process.lines) == 3)
        self.assertIn("p11", process.lines[0])
        self.assertEqual(process.lines[2], f"{mac(1)} is at 0000000000000001:1")

    def test_an_entry_comes_while_a_link_is_down(self):
        self.cable(1, 2)
        process = self.text(DETOUR)
        self.until_cut("nw_dst=10.0.0.2 actions=output:3")
        self.cable(1, 2)
        wait_for("no entry", lambda: "nw_dst=10.0.0.2" not in self.entries())
        self.cut(1, 2)
        wait_for("the entry", lambda: "nw_dst=10.0.0.2 actions=output:3" in self.entries())
        self.assertIsNone(process.poll(), process.lines)

    def until_cut(self, text):
        """Cuts the link until the program, which may not listen yet, sets its entry."""

        def cut():
            wait_for("the link", lambda: self.net.topology()["links"])
            self.cut(1, 2)
            wait_for("its end", lambda: not self.net.topology()["links"])
            end = time.monotonic() + 2
            while time.monotonic() < end:
                if text in self.entries(1) + self.entries(2):
                    return True
            self.cable(1, 2)
            return False

        wait_for(text, cut)

    def test_the_program_of_the_package_s_page(self):
        self.cable(1, 2)
        process = self.text(README)
        self.until_cut("nw_dst=10.0.0.2 actions=output:3")
        self.assertIn("detour", self.net.flows["lesson"])
        self.assertIsNone(process.poll(), process.lines)


del test_examples

if __name__ == "__main__":
    unittest.main()
