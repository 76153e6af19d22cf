"""A model hub on 127.0.0.1 that answers what huggingface_hub asks, and fails where it is told to."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34


@dataclass(slots=True)
class Hub:
    """One repository. `told` is what the hub says of its files, `sent` what it really sends."""

    repository: str
    told: dict[str, bytes]
    sent: dict[str, bytes] = field(default_factory=dict)
    stall: str | None = None
    """Stop in the middle of this file until `go_on` is set."""
    cut: str | None = None
    """Close the connection in the middle of this file."""
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""

    def listing(self) -> bytes:
        siblings = [_sibling(name, content) for name, content in self.told.items()]
        return json.dumps({"id": self.repository, "sha": COMMIT, "siblings": siblings}).encode()


def _sibling(name: str, content: bytes) -> dict[str, object]:
    """Large files are kept outside git and known by their sha256, small ones by git's own hash."""
    sibling: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": _blob_id(content)}
    if name.endswith(".tflite"):
        sha256 = hashlib.sha256(content).hexdigest()
        sibling["lfs"] = {"size": len(content), "sha256": sha256, "pointerSize": 130}
    return sibling


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serving(repository: str, files: Mapping[str, bytes]) -> Iterator[Hub]:
    hub = Hub(repository, dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            name = self.path.rpartition("/")[2]
            if self.path.startswith(f"/api/models/{hub.repository}"):
                self._send(hub.listing(), {}, body=body)
            elif self.path.startswith(f"/{hub.repository}/resolve/") and name in hub.told:
                self._send_file(name, body=body)
            else:
                missing = "EntryNotFound" if self.path.startswith(f"/{hub.repository}/") else "RepoNotFound"
                self.send_response(404)
                self.send_header("X-Error-Code", missing)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send_file(self, name: str, *, body: bool) -> None:
            told = hub.told[name]
            etag = hashlib.sha256(told).hexdigest() if name.endswith(".tflite") else _blob_id(told)
            content = hub.sent.get(name, told)
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            middle = len(content) // 2 if body and name in (hub.stall, hub.cut) else None
            self._send(content[start:], headers, body=body, pause=middle, cut=name == hub.cut, partial=bool(start))

        def _send(
            self,
            content: bytes,
            headers: Mapping[str, str],
            *,
            body: bool,
            pause: int | None = None,
            cut: bool = False,
            partial: bool = False,
        ) -> None:
            self.send_response(206 if partial else 200)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if not body:
                return
            self.wfile.write(content[:pause])
            if pause is None:
                return
            self.wfile.flush()
            if cut:
                self.close_connection = True
                return
            hub.stalled.set()
            hub.go_on.wait(60)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        server.server_close()
