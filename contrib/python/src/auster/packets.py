"""Fields of a packet. Hosts send what they like: a field that is not there is None."""

from __future__ import annotations

import base64
import re
from typing import Any, Callable, Dict, Generic, Optional, Tuple, TypeVar, Union, overload

TAGS, TAGS_MAX = (0x8100, 0x88A8), 4
TCP, UDP = 6, 17
LOCAL = 0xFFFFFFFE  # the port of the bridge itself
Value = TypeVar("Value", int, str)


class Place(str):
    """A port of a switch, as text: `0000000000000001:2`."""

    @property
    def switch(self) -> str:
        return self[:16]

    @property
    def port(self) -> int:
        return LOCAL if self.endswith(":LOCAL") else int(self[17:])


def place(value: Any) -> Any:
    """The value, as a `Place` if it is one."""
    is_place = isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16}:(\d{1,10}|LOCAL)", value)
    return Place(value) if is_place else value


def _mac(data: bytes) -> str:
    return data.hex(":")


def _ip(data: bytes) -> str:
    return ".".join(map(str, data))


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


class _Field(Generic[Value]):
    """Bytes behind the beginning of a header, and what they say; None if they are not there."""

    def __init__(self, header: str, at: int, size: int, read: Callable[[bytes], Value]) -> None:
        self._header, self._at, self._size = header, at, size
        self._read: Callable[[bytes], Value] = read
        self._name = ""

    def __set_name__(self, kind: Any, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, packet: None, kind: Any) -> _Field[Value]: ...

    @overload
    def __get__(self, packet: Packet, kind: Any) -> Optional[Value]: ...

    def __get__(self, packet: Optional[Packet], kind: Any) -> Union[None, Value, _Field[Value]]:
        if packet is None:
            return self
        value = None
        start = packet.header(self._header)
        if start is not None:
            data = packet.data[start + self._at:start + self._at + self._size]
            value = self._read(data) if len(data) == self._size else None
        # Python finds it there the next time, before it comes here.
        packet.__dict__[self._name] = value
        return value


class Packet:
    """A packet that a tap has taken: where, and its first bytes. It is read only as it is asked."""

    eth_dst = _Field("eth", 0, 6, _mac)
    eth_src = _Field("eth", 6, 6, _mac)
    ip_proto = _Field("ip", 9, 1, _number)
    ipv4_src = _Field("ip", 12, 4, _ip)
    ipv4_dst = _Field("ip", 16, 4, _ip)
    tcp_src = _Field("tcp", 0, 2, _number)
    tcp_dst = _Field("tcp", 2, 2, _number)
    udp_src = _Field("udp", 0, 2, _number)
    udp_dst = _Field("udp", 2, 2, _number)
    # 1 is a question, 2 an answer.
    arp_op = _Field("arp", 6, 2, _number)
    arp_sha = _Field("arp", 8, 6, _mac)
    arp_spa = _Field("arp", 14, 4, _ip)
    arp_tha = _Field("arp", 18, 6, _mac)
    arp_tpa = _Field("arp", 24, 4, _ip)

    def __init__(self, data: bytes, at: str = "", tap: str = "", size: int = 0) -> None:
        self.data, self.tap, self.at = data, tap, Place(at)
        # The whole packet's size: `data` is the beginning of it.
        self.size = size or len(data)
        self._ethernet: Optional[Tuple[Optional[int], Optional[int], int]] = None

    @classmethod
    def of(cls, document: Dict[str, Any]) -> Packet:
        """The packet of a `packet_in`."""
        try:
            data = base64.b64decode(document.get("data") or "")
        except (ValueError, TypeError):
            data = b""
        at, size = place(document.get("at")), document.get("bytes")
        return cls(data, at if isinstance(at, Place) else "", str(document.get("tap", "")),
                   size if isinstance(size, int) else 0)

    def __repr__(self) -> str:
        kind = "none" if self.eth_type is None else f"{self.eth_type:#06x}"
        return f"<Packet {kind} at {self.at}: {self.eth_src} > {self.eth_dst}, {self.size} bytes>"

    @property
    def switch(self) -> str:
        return self.at.switch

    @property
    def port(self) -> int:
        return self.at.port if self.at else 0

    @property
    def is_group(self) -> bool:
        """Whether it is for several: a broadcast or a multicast."""
        return bool(self.data) and self.data[0] & 1 == 1

    @property
    def eth_type(self) -> Optional[int]:
        """What the frame carries, behind its VLAN tags."""
        return self._tags()[0]

    @property
    def vlan(self) -> Optional[int]:
        """The VLAN of the outermost tag."""
        return self._tags()[1]

    @property
    def udp_payload(self) -> bytes:
        at = self.header("udp")
        return b"" if at is None else self.data[at + 8:]

    def arp_answer(self, mac: str) -> Optional[bytes]:
        """The answer to this question for an IPv4 address: it has that hardware address."""
        at = self.header("arp")
        if at is None or self.arp_op != 1 or self.arp_tpa is None:
            return None
        ours, asker = bytes.fromhex(mac.replace(":", "")), self.data[at + 8:at + 18]
        head = asker[:6] + ours + self.data[12:at + 6]
        return head + b"\0\2" + ours + self.data[at + 24:at + 28] + asker

    def header(self, name: str) -> Optional[int]:
        """Where `eth`, `arp`, `ip` (version 4), `tcp` or `udp` begins, if the packet has it."""
        if name == "eth":
            return 0
        kind, _, at = self._tags()
        if name == "arp":
            is_arp = kind == 0x0806 and self.data[at:at + 6] == b"\0\1\x08\0\6\4"
            return at if is_arp else None
        ip = self.data[at:at + 20]
        if kind != 0x0800 or not ip or ip[0] >> 4 != 4:
            return None
        if name == "ip":
            return at
        # A fragment behind the first has no ports.
        is_first = len(ip) == 20 and _number(ip[6:8]) & 0x1FFF == 0
        length = (ip[0] & 15) * 4
        is_it = is_first and length >= 20 and ip[9] == {"tcp": TCP, "udp": UDP}.get(name)
        return at + length if is_it else None

    def _tags(self) -> Tuple[Optional[int], Optional[int], int]:
        """What the frame carries, its VLAN, and where that begins."""
        if self._ethernet is None:
            at, vlan = 14, None
            while at < 14 + 4 * TAGS_MAX and _number(self.data[at - 2:at]) in TAGS:
                if len(self.data) < at + 4:
                    # A tag that is cut short: what it is before is not known.
                    at = len(self.data) + 1
                    break
                vlan = _number(self.data[at:at + 2]) & 0xFFF if vlan is None else vlan
                at += 4
            kind = _number(self.data[at - 2:at]) if len(self.data) >= at else None
            self._ethernet = (kind, vlan, at)
        return self._ethernet
