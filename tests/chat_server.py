"""A chat server on loopback that fails as servers do: in front of `transformers serve`, or with answers of its own."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR, socket

from chat_oracle import right

HANG = 40
"""Seconds for which a hanging server stays silent: longer than clients wait."""


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(folder: Path, log: Path):
    """The address of a server of one model; it ends with the block."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(1200):
                assert process.poll() is None, log.read_text()
                try:
                    urllib.request.urlopen(f"{address}/health", timeout=2).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield address
        finally:
            process.terminate()
            process.wait()


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a server of one model, by whatever name it was asked for, and notes all of them.

    Without such a server, `says` makes an answer out of a question. Answers take `slow` seconds.
    `faults` tells what happens to the next requests, in turn: a status, "hang", "drop", or None for a good answer.
    `received` holds the questions as they came, `answered` those that got an answer, with it.
    """

    daemon_threads = True

    def __init__(self, upstream: str | None = None, model: str = "", says=right):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.model, self.says = upstream, model, says
        self.faults: list = []
        self.always: int | None = None
        self.slow = 0.0
        self.received: list[str] = []
        self.answered: list[tuple[str, str]] = []
        self.keys: set[str] = set()
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        pass  # a client that was killed


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_POST(self):
        proxy: Proxy = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        question = json.loads(body)["messages"][0]["content"]
        with proxy.lock:
            proxy.received.append(question)
            proxy.keys.add(self.headers["Authorization"])
            fault = proxy.always or (proxy.faults.pop(0) if proxy.faults else None)
        time.sleep(proxy.slow)
        if fault == "hang":
            time.sleep(HANG)
        if fault in ("hang", "drop"):
            self.connection.shutdown(SHUT_RDWR)
            self.close_connection = True
            return
        if fault is not None:
            # Some servers repeat the key they refuse.
            said = json.dumps({"error": {"message": f"no: {self.headers['Authorization']}", "type": "x", "code": str(fault)}})
            self._reply(fault, said.encode())
            return
        content = self._passed_on(body) if proxy.upstream else self._made_up(proxy.says(question))
        answer = json.loads(content)["choices"][0]["message"]["content"]
        self._reply(200, content)
        with proxy.lock:
            proxy.answered.append((question, answer))

    def _passed_on(self, body: bytes) -> bytes:
        body = json.dumps(json.loads(body) | {"model": self.server.model}).encode()
        request = urllib.request.Request(f"{self.server.upstream}{self.path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return reply.read()

    def _made_up(self, text: str) -> bytes:
        choice = {"index": 0, "message": {"role": "assistant", "content": f" {text}"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102}
        about = {"id": "1", "object": "chat.completion", "created": 1, "model": "made-up"}
        return json.dumps(about | {"choices": [choice], "usage": usage}).encode()

    def _reply(self, status: int, content: bytes):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
