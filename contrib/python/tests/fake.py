"""A small server that answers as auster's API does, and notes what it was asked."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE_S = 120


class Fake:
    """Answers by `answers[METHOD, PATH]`, a (status, document) or a function of the body that
    gives one; `streams[PATH]` has lists of documents, one for each time the stream is opened: the
    stream ends behind them, and stays open behind the last list."""

    def __init__(self, unix=None):
        self.asked = []
        self.answers = {("GET", "/v1/topology"): (200, {"seq": 10, "switches": [], "links": []})}
        self.streams = {}
        self.connections = set()
        self.drop = False
        # The numbers of requests that get no answer.
        self.unanswered = ()
        self._ends = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def log_message(self, *_):
                pass

            def address_string(self):
                return "client"

            def answer(self):
                fake.connections.add(self.connection.fileno() if unix else self.client_address)
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path = self.path.partition("?")[0]
                fake.asked.append((self.command, self.path, body, dict(self.headers)))
                if path in fake.streams:
                    self.stream(fake.streams[path])
                    return
                if fake.unanswered and len(fake.asked) in fake.unanswered:
                    self.close_connection = True
                    return
                answer = fake.answers.get((self.command, path), (200, {}))
                status, document = answer(body) if callable(answer) else answer
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                if fake.drop:
                    # Without a word of it in the answer, as for an idle connection.
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer

            def stream(self, turns):
                self.protocol_version = "HTTP/1.0"
                self.close_connection = True
                self.wfile.write(b"HTTP/1.0 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n\n")
                documents = turns.pop(0) if turns else []
                self.wfile.write(b"".join(json.dumps(d).encode() + b"\n" for d in documents))
                self.wfile.flush()
                if not turns:
                    fake._ends.wait(PATIENCE_S)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_UNIX if unix else socket.AF_INET

            def server_bind(self):
                self.socket.bind(self.server_address)
                self.server_name, self.server_port = "localhost", 0

        self.server = Server(unix or ("127.0.0.1", 0), Handler)
        at = self.server.socket.getsockname()
        self.url = f"unix:{unix}" if unix else f"http://127.0.0.1:{at[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def of(self, method, path=""):
        """What was asked by this method, at a path that begins so."""
        return [asked for asked in self.asked if asked[0] == method and asked[1].startswith(path)]

    def close(self):
        self._ends.set()
        self.server.shutdown()
        self.server.server_close()
