"""The network: what is known of it, what happens in it, and what an application wants of it."""

from __future__ import annotations

import base64
import logging
import random
import selectors
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, List, MutableMapping, Optional, Sequence, Tuple
from typing import TypeVar, Union
from urllib.parse import quote, urlencode

from auster.packets import Packet, place
from auster.stream import SILENCE_MAX_S, Api, Error, Problem, Stream, Unreachable

# What one request may have, of changes or packets and of bytes of packets.
AT_ONCE_MAX = 256
BYTES_AT_ONCE_MAX = 512 << 10
FIRST_WAIT_S, WAIT_MAX_S = 0.1, 10.0
NOT_EVENTS = ("packet_in", "shed", "error")

Handler = TypeVar("Handler", bound=Callable[[Any], Any])
Entry = Dict[str, Any]
log = logging.getLogger("auster")


class Event(Dict[str, Any]):
    """An event as it comes, a dict. Its fields are attributes too, and ports are `Place`s."""

    def __getattr__(self, name: str) -> Any:
        # `from` is a word of Python: `event.from_`.
        try:
            return place(self[name[:-1] if name.endswith("_") else name])
        except KeyError:
            raise AttributeError(f"{self.get('event')} has no {name}") from None


class Stated(Dict[str, Any]):
    """An entry as auster has it, a dict that cannot be changed: another one takes its place."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "this is a copy of the entry: net.flows[OWNER][NAME] = {**entry, 'actions': …} changes it"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    update = setdefault = pop = popitem = clear = _refuse  # type: ignore[assignment]


class Tap:
    """Packets that auster takes for an application."""

    def __init__(self, net: Network, owner: str, name: str, body: Entry) -> None:
        self.owner, self.name, self.body = owner, name, body
        self._net = net

    def put(self) -> None:
        self._net.request("PUT", _path("taps", self.owner, self.name), self.body)

    def close(self) -> None:
        self._net._taps.pop((self.owner, self.name), None)
        self._net.request("DELETE", _path("taps", self.owner, self.name))


class OwnerFlows(MutableMapping[str, Entry]):
    """The static flow entries of one owner, by name. Each look and each change asks auster.

    Within `Network.batch`, changes wait for its end, and looks do not see them.
    """

    def __init__(self, net: Network, owner: str) -> None:
        self._net, self._owner = net, owner

    def __getitem__(self, name: str) -> Entry:
        try:
            entry: Entry = self._net.request("GET", _path("flows", self._owner, name))
        except Problem as problem:
            raise _missing(problem, name) from None
        return Stated(entry)

    def __setitem__(self, name: str, entry: Entry) -> None:
        batch = self._net._batch
        if batch is None:
            self._net.request("PUT", _path("flows", self._owner, name), entry)
        else:
            batch.flows.setdefault(self._owner, {})[name] = entry

    def __delitem__(self, name: str) -> None:
        batch = self._net._batch
        if batch is not None:
            batch.flows.setdefault(self._owner, {})[name] = None
            return
        try:
            self._net.request("DELETE", _path("flows", self._owner, name))
        except Problem as problem:
            raise _missing(problem, name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> Dict[str, Entry]:
        """All of them, a thousand by a request."""
        entries = self._net._pages(_path("flows", self._owner), "flows", {})
        return {entry["name"]: Stated(entry) for entry in entries}

    def update(self, *changes: Any, **more: Any) -> None:
        """Makes all these changes or none, at most 256; None in place of an entry deletes it."""
        wanted: Dict[str, Optional[Entry]] = dict(*changes, **more)
        batch = self._net._batch
        if batch is not None:
            batch.flows.setdefault(self._owner, {}).update(wanted)
        elif wanted:
            self._net.request("PATCH", _path("flows", self._owner), wanted)

    def clear(self) -> None:
        self._net.request("DELETE", _path("flows", self._owner))


class Flows:
    """Static flow entries: `net.flows[OWNER][NAME] = dict(switch=…, match=…, actions=…)`.

    To iterate gives the owners that have any.
    """

    def __init__(self, net: Network) -> None:
        self._net = net

    def __getitem__(self, owner: str) -> OwnerFlows:
        return OwnerFlows(self._net, owner)

    def __delitem__(self, owner: str) -> None:
        self[owner].clear()

    def __iter__(self) -> Iterator[str]:
        entries = self._net._pages("/v1/flows", "flows", {})
        return iter(dict.fromkeys(entry["owner"] for entry in entries))


class _Batch:
    def __init__(self) -> None:
        self.flows: Dict[str, Dict[str, Optional[Entry]]] = {}
        self.packets: List[Entry] = []


class _Source:
    """A stream that is opened again whenever it ends; of a tap's owner, or of all events."""

    def __init__(self, owner: Optional[str]) -> None:
        self.owner = owner
        self.stream: Optional[Stream] = None
        # The number of the last packet.
        self.seq: Optional[int] = None
        self.wait_s, self.due = FIRST_WAIT_S, 0.0
        self.has_failed = False

    def failed(self, now: float) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        self.has_failed = True
        # Applications that auster's restart has cut off do not all come at once.
        self.due = now + self.wait_s * (0.5 + random.random() / 2)
        self.wait_s = min(2 * self.wait_s, WAIT_MAX_S)


class Network:
    """A network. Handlers run one after the other, in the thread that calls `run`.

    With `on_disconnect="remove"` auster removes the entries and taps of an owner whose packets
    this program has read, when it has been gone for ten seconds; else entries stay.
    """

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        ca: Optional[str] = None,
        on_disconnect: Optional[str] = None,
    ) -> None:
        self._api = Api(url, token, ca)
        self._on_disconnect = on_disconnect
        self.flows = Flows(self)
        self._handlers: Dict[str, List[Tuple[Optional[Tap], Callable[[Any], Any]]]] = {}
        self._taps: Dict[Tuple[str, str], Tap] = {}
        self._local = threading.local()
        self._sources: Dict[Optional[str], _Source] = {}
        # The number of the last event that is known, and a reset that is not handled yet.
        self._seq: Optional[int] = None
        self._reset: Optional[Event] = None
        self._is_running = self._is_stopped = False
        self._wake: Optional[socket.socket] = None

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Any request of the API: `net.request("GET", "/v1/paths")`."""
        return self._api.request(method, path, body)

    def topology(self) -> Entry:
        """Switches with their ports, and links. `run` has the events behind the last one read."""
        topology: Entry = self.request("GET", "/v1/topology")
        if not self._is_running:
            self._seq = topology["seq"]
        return topology

    def hosts(self, **query: Any) -> List[Entry]:
        """All hosts, or those of a `switch`, a `vlan`, or that `q` is the beginning of."""
        return self._pages("/v1/hosts", "hosts", query)

    def _pages(self, path: str, key: str, query: Dict[str, Any]) -> List[Entry]:
        found: List[Entry] = []
        after = None
        while True:
            page = {**query, "limit": 1000, **({"after": after} if after else {})}
            answer = self.request("GET", f"{path}?{urlencode(page)}")
            found += answer[key]
            after = answer.get("next")
            if after is None:
                return found

    def tap(self, owner: str, name: Optional[str] = None, match: str = "", **body: Any) -> Tap:
        """Has auster take packets: `copy=False` diverts them, `at`, `rate_max` and `bytes`
        are the API's. `run` sets the tap again when auster has started anew, and takes it
        away when it ends."""
        name = name or f"tap{sum(tap.owner == owner for tap in self._taps.values()) + 1}"
        tap = Tap(self, owner, name, {"match": match, **body})
        tap.put()
        self._taps[owner, name] = tap
        return tap

    def on(self, *kinds: str, tap: Optional[Tap] = None) -> Callable[[Handler], Handler]:
        """Calls the function with each event of these kinds: an `Event`, or a `Packet` for
        `packet_in`. `*` is every event of the network. `error` gets what went wrong."""
        if not kinds or not all(isinstance(kind, str) for kind in kinds):
            raise TypeError('the kinds of events are missing: @net.on("packet_in", tap=tap)')
        if tap is not None and not isinstance(tap, Tap):
            raise TypeError(f"tap={tap!r}: it must be what net.tap(…) gives")
        if tap is not None and not {"packet_in", "shed"}.issuperset(kinds):
            raise ValueError("only packet_in and shed have a tap")

        def decorate(handler: Handler) -> Handler:
            for kind in kinds:
                self._handlers.setdefault(kind, []).append((tap, handler))
            return handler

        return decorate

    def send(
        self,
        at: Optional[Sequence[str]] = None,
        data: bytes = b"",
        switch: Optional[str] = None,
        actions: str = "",
        in_port: Optional[int] = None,
    ) -> None:
        """Sends a packet out of ports: `at`, or a switch with `actions` such as `flood`."""
        packet: Entry = {"data": base64.b64encode(data).decode()}
        if at is not None:
            packet["at"] = [at] if isinstance(at, str) else list(at)
        else:
            packet.update(switch=switch, actions=actions)
            if in_port is not None:
                packet["in_port"] = in_port
        batch = self._batch
        if batch is None:
            self.request("POST", "/v1/packets", packet)
        else:
            batch.packets.append(packet)

    @property
    def _batch(self) -> Optional[_Batch]:
        return getattr(self._local, "batch", None)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Sends this thread's changes of entries, then its packets, together and at the end;
        nothing after an exception. `run` does so around the packets that have come."""
        if self._batch is not None:
            yield
            return
        batch = self._local.batch = _Batch()
        try:
            yield
        finally:
            self._local.batch = None
        self._send(batch)

    def _send(self, batch: _Batch) -> None:
        """Sends all that can be, and raises the first of what went wrong."""
        errors: List[Error] = []
        for owner, changes in batch.flows.items():
            names = list(changes)
            for some in _parts([1] * len(names)):
                part = {name: changes[name] for name in names[some]}
                self._try(errors, "PATCH", _path("flows", owner), part)
        for some in _parts([len(packet["data"]) for packet in batch.packets]):
            self._try(errors, "POST", "/v1/packets", batch.packets[some])
        if errors:
            raise errors[0]

    def _try(self, errors: List[Error], method: str, path: str, body: Any) -> None:
        """What is named as wrong does not keep the others, which may be other handlers'."""
        try:
            self.request(method, path, body)
        except Problem as problem:
            if problem.status == 413 and len(body) > 1:
                # A cluster takes fewer at once than one controller.
                items = list(body.items()) if isinstance(body, dict) else list(body)
                kind = type(body)
                for half in items[: len(items) // 2], items[len(items) // 2:]:
                    self._try(errors, method, path, kind(half))
                return
            errors.append(problem)
            wrong = {str(error.get("pointer")).split("/")[1:2][0] for error in problem.errors
                     if str(error.get("pointer")).startswith("/")}
            rest: Any
            if isinstance(body, dict):
                rest = {name: change for name, change in body.items() if name not in wrong}
            else:
                rest = [packet for n, packet in enumerate(body) if str(n) not in wrong]
            if rest and len(rest) < len(body):
                self._try(errors, method, path, rest)
        except Unreachable as error:
            errors.append(error)

    def close(self) -> None:
        """Closes the connection that is kept; the next request opens another."""
        self._api.close()

    def stop(self) -> None:
        """Ends `run`, from a handler or another thread."""
        self._is_stopped = True
        wake = self._wake
        if wake is not None:
            with suppress(OSError):
                wake.send(b"\0")

    def run(self) -> None:
        """Calls handlers until `stop`, or Ctrl-C. It opens streams again when they end, from the last
        event on; where auster does not keep the events since, it reads the topology anew and
        handlers of `reset` get it as `event.topology`."""
        self._is_running = True
        try:
            woken, self._wake = socket.socketpair()
            with woken, self._wake:
                while not self._is_stopped:
                    self._turn(woken)
        except KeyboardInterrupt:
            log.info("stopped by Ctrl-C")
        finally:
            self._is_running, self._is_stopped, self._wake = False, False, None
            for source in self._sources.values():
                if source.stream is not None:
                    source.stream.close()
            self._sources.clear()
            for tap in list(self._taps.values()):
                with suppress(Error):
                    tap.close()
            self.close()

    def _turn(self, woken: socket.socket) -> None:
        owners: List[Optional[str]] = list(dict.fromkeys(tap.owner for tap in self._taps.values()))
        if any(kind not in NOT_EVENTS for kind in self._handlers):
            owners.append(None)
        wait = SILENCE_MAX_S
        for owner in owners:
            source = self._sources.setdefault(owner, _Source(owner))
            if source.stream is None and source.due <= time.monotonic():
                self._guarded(source, self._open)
                # Something may have come with the head.
                wait = 0.0
        for owner in set(self._sources).difference(owners):
            gone = self._sources.pop(owner).stream
            if gone is not None:
                gone.close()
        with selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            for source in self._sources.values():
                if source.stream is None:
                    wait = min(wait, max(0.0, source.due - time.monotonic()))
                else:
                    selector.register(source.stream, selectors.EVENT_READ)
            if not self._is_stopped:
                selector.select(wait)
        try:
            with self.batch():
                for source in list(self._sources.values()):
                    if source.stream is not None:
                        self._guarded(source, self._read)
        except Error as error:
            self._report(error)

    def _guarded(self, source: _Source, step: Callable[[_Source], None]) -> None:
        try:
            step(source)
        except Error as error:
            source.failed(time.monotonic())
            if isinstance(error, Problem) and not error.is_passing:
                raise
            self._report(error)

    def _open(self, source: _Source) -> None:
        if source.owner is not None:
            for tap in self._taps.values():
                # auster may have started anew, without them.
                if source.has_failed and tap.owner == source.owner:
                    tap.put()
            asked = {"since": source.seq, "on_disconnect": self._on_disconnect}
            given = urlencode({name: value for name, value in asked.items() if value is not None})
            path = _path("taps", source.owner, "packets")
            source.stream = self._api.open(f"{path}?{given}" if given else path)
        else:
            if self._seq is None:
                self._seq = self.request("GET", "/v1/topology")["seq"]
            kinds = [kind for kind in self._handlers if kind not in NOT_EVENTS]
            query = {"follow": "true", "since": self._seq}
            if "*" not in kinds:
                query["kinds"] = ",".join(kinds)
            try:
                source.stream = self._api.open(f"/v1/events?{urlencode(query)}")
            except Problem as problem:
                # auster knows its kinds, and says which one it does not have.
                unknown = [kind for kind in kinds if f"'{kind}'" in str(problem)]
                if problem.status != 400 or not unknown:
                    raise
                raise ValueError(f'@net.on("{unknown[0]}"): {problem}') from None

    def _read(self, source: _Source) -> None:
        documents = source.stream.read() if source.stream is not None else []
        if documents:
            source.wait_s = FIRST_WAIT_S
        for document in documents:
            if self._is_stopped:
                return
            if source.owner is not None:
                seq = document.get("seq")
                source.seq = seq if isinstance(seq, int) else source.seq
                self._packet(source.owner, document)
            else:
                self._event(Event(document))
        if source.owner is None and self._reset is not None:
            self._read_again()

    def _packet(self, owner: str, document: Entry) -> None:
        kind, name = document.get("event"), document.get("tap")
        is_packet = kind == "packet_in"
        if not is_packet and kind != "shed":
            return
        what = Packet.of(document) if is_packet else Event(document, owner=owner)
        for tap, handler in self._handlers.get(str(kind), ()):
            if tap is None or (tap.owner == owner and name in (None, tap.name)):
                self._call(handler, what)

    def _event(self, event: Event) -> None:
        kind, seq = event.get("event"), event.get("seq")
        if kind == "reset":
            self._reset = event
            return
        if self._reset is not None or (isinstance(seq, int) and seq <= (self._seq or 0)):
            # It is in the topology that is, or will be, read.
            return
        if isinstance(seq, int):
            self._seq = seq
        for _, handler in [*self._handlers.get(str(kind), ()), *self._handlers.get("*", ())]:
            self._call(handler, event)

    def _read_again(self) -> None:
        event = self._reset
        topology = self.request("GET", "/v1/topology")
        self._seq, self._reset = topology["seq"], None
        for _, handler in self._handlers.get("reset", ()):
            self._call(handler, Event(event or {}, topology=topology))

    def _call(self, handler: Callable[[Any], Any], what: Any) -> None:
        try:
            handler(what)
        except Error as error:
            self._report(error)

    def _report(self, error: Error) -> None:
        handlers = self._handlers.get("error", [])
        for _, handler in handlers:
            handler(error)
        if not handlers:
            log.warning("%s", error)


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _missing(problem: Problem, name: str) -> Union[Problem, KeyError]:
    return KeyError(name) if problem.status == 404 else problem


def _parts(sizes: List[int]) -> List[slice]:
    """Cuts a list, by the sizes of what is in it, into parts that one request may have."""
    parts, first, size = [], 0, 0
    for n, bytes_of_it in enumerate(sizes):
        if n > first and (n - first == AT_ONCE_MAX or size + bytes_of_it > BYTES_AT_ONCE_MAX):
            parts.append(slice(first, n))
            first, size = n, 0
        size += bytes_of_it
    return parts + [slice(first, len(sizes))] if sizes else []
