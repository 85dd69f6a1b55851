"""auster's API over HTTP: requests on a connection that is kept, and streams of documents."""

from __future__ import annotations

import http.client
import io
import json
import re
import select
import socket
import ssl
import threading
import time
from typing import Any, Dict, List, Optional, Union
from urllib.parse import urlsplit

ANSWER_MAX = 64 << 20
HEAD_MAX = 64 << 10
LINE_MAX = 1 << 20
READ_MAX = 256 << 10
TIMEOUT_S = 30.0
# auster closes a connection that has been idle for 10 s, and any after 300 s.
IDLE_MAX_S, AGE_MAX_S = 5.0, 280.0
# A stream says something each 15 s.
SILENCE_MAX_S = 45.0


class Error(Exception):
    """The API did not do what it was asked for."""


class Unreachable(Error):
    """There is no answer: it is not known whether a change was made."""


class Problem(Error):
    """The API refuses, with the fields of its problem document (RFC 9457)."""

    def __init__(self, status: int, document: Any) -> None:
        fields: Dict[str, Any] = document if isinstance(document, dict) else {}
        self.status = status
        self.title = str(fields.get("title", ""))
        self.detail = str(fields.get("detail", ""))
        errors = fields.get("errors")
        listed = errors if isinstance(errors, list) else []
        self.errors: List[Dict[str, Any]] = [error for error in listed if isinstance(error, dict)]
        wrong = [": ".join(str(error[key]) for key in ("pointer", "detail") if error.get(key))
                 for error in self.errors if error.get("detail") != self.detail]
        super().__init__("; ".join([f"{status} {self.detail or self.title}", *wrong]))

    @property
    def is_passing(self) -> bool:
        """Whether the same may be answered otherwise later."""
        return self.status >= 500 or self.status in (408, 429)


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Api:
    """The API at `http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT` or `unix:FILE`."""

    def __init__(self, url: str, token: Optional[str] = None, ca: Optional[str] = None) -> None:
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise ValueError("a token is one word: is the file's line end or more in it?")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._unix: Optional[str] = None
        self._tls: Optional[ssl.SSLContext] = None
        self._host, self._port = "localhost", 80
        if url.startswith("unix:"):
            self._unix = url[len("unix:"):]
        else:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            is_known = parts.scheme in ("http", "https") and not parts.path.strip("/")
            if not is_known or not parts.hostname:
                raise ValueError(f"'{url}' is none of http://HOST:PORT, https://…, unix:FILE")
            if parts.scheme == "https":
                self._tls = ssl.create_default_context(cafile=ca)
            self._host = parts.hostname
            self._port = parts.port or (443 if self._tls else 80)
        self._lock = threading.Lock()
        self._kept: Optional[http.client.HTTPConnection] = None
        self._opened_at = self._used_at = 0.0

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The document of the answer, None without one. Raises `Problem` or `Unreachable`."""
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        with self._lock:
            # Whatever comes of it, it is kept anew or not at all.
            kept, self._kept = self._kept, None
            if kept is not None and self._is_stale(kept):
                kept.close()
                kept = None
            try:
                return self._ask(kept or self._fresh(), method, path, data, headers)
            except Unreachable:
                # Packets are sent once at most. Anything else may be said twice.
                if kept is None or method == "POST":
                    raise
                return self._ask(self._fresh(), method, path, data, headers)

    def open(self, path: str) -> Stream:
        """Opens a stream of documents, one a line."""
        connection = self._connect()
        try:
            # The body of an answer by HTTP 1.0 has no chunks: it is the lines, until the end.
            lines = [f"GET {path} HTTP/1.0", f"Host: {self._authority()}"]
            lines += [f"{name}: {value}" for name, value in self._headers.items()]
            connection.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
            return _answered(connection.sock)
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except Error:
            connection.close()
            raise

    def close(self) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.close()
                self._kept = None

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self._unix or self._authority()}: {str(error) or type(error).__name__}")

    def _authority(self) -> str:
        if self._unix is not None:
            return "localhost"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def _connect(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._unix is not None:
            connection = _Unix(self._unix, TIMEOUT_S)
        elif self._tls is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT_S, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unreachable(error) from error
        return connection

    def _fresh(self) -> http.client.HTTPConnection:
        self._opened_at = time.monotonic()
        return self._connect()

    def _is_stale(self, connection: http.client.HTTPConnection) -> bool:
        now = time.monotonic()
        if now - self._used_at > IDLE_MAX_S or now - self._opened_at > AGE_MAX_S:
            return True
        # Nobody has asked: what can be read is the end.
        return bool(select.select([connection.sock], [], [], 0)[0])

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        data: Optional[bytes],
        headers: Dict[str, str],
    ) -> Any:
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read(ANSWER_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        if len(text) > ANSWER_MAX:
            connection.close()
            raise Unreachable(f"an answer of more than {ANSWER_MAX} bytes")
        if answer.will_close:
            connection.close()
        else:
            self._kept, self._used_at = connection, time.monotonic()
        document = _document(text)
        if answer.status >= 300:
            raise Problem(answer.status, document)
        return document


class Stream:
    """Documents as they come. `fileno` is for `select`."""

    def __init__(self, sock: socket.socket, first: bytes) -> None:
        sock.setblocking(False)
        self._sock, self._rest, self._is_over = sock, first, False
        self.heard_at = time.monotonic()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def read(self) -> List[Dict[str, Any]]:
        """All documents that have come; raises `Unreachable` at the end."""
        data = [self._rest]
        size = 0
        # What TLS holds already, `select` does not see.
        while size < READ_MAX or getattr(self._sock, "pending", int)():
            try:
                more = self._sock.recv(READ_MAX)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except OSError as error:
                raise Unreachable(str(error)) from error
            if not more:
                self._is_over = True
                break
            self.heard_at = time.monotonic()
            size += len(more)
            data.append(more)
        *lines, self._rest = b"".join(data).split(b"\n")
        # One call for all of them: where there are many, each is short.
        documents = _document(b"[%s]" % b",".join(filter(bytes.strip, lines)))
        if not documents and documents is not None and self._is_over:
            raise Unreachable("the stream has ended")
        is_broken = len(self._rest) > LINE_MAX or documents is None or None in documents
        if is_broken:
            raise Unreachable("the stream is none of documents, one a line")
        if time.monotonic() - self.heard_at > SILENCE_MAX_S:
            raise Unreachable(f"no word for {SILENCE_MAX_S:.0f} s")
        return [document for document in documents if isinstance(document, dict)]


def _answered(sock: Union[socket.socket, ssl.SSLSocket]) -> Stream:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(HEAD_MAX)
        data += more
        if not more or len(data) > HEAD_MAX + READ_MAX:
            raise Unreachable("the connection was closed before an answer")
    head, _, body = data.partition(b"\r\n\r\n")
    status, _, _headers = head.partition(b"\r\n")
    word = status.split(b" ", 2)[1:2]
    code = int(word[0]) if word and word[0].isdigit() else 0
    if code == 200:
        return Stream(sock, body)
    with io.BytesIO(body) as whole:
        whole.seek(0, io.SEEK_END)
        while whole.tell() < HEAD_MAX:
            more = sock.recv(HEAD_MAX)
            if not more:
                break
            whole.write(more)
        raise Problem(code, _document(whole.getvalue()))


def _document(text: bytes) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return None
