"""A stand-in for Grafana's HTTP API, with the answers that its documentation gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "glsa_canary_token_of_a_test"
PAGE = "<html><body>502 Bad Gateway: no message from upstream</body></html>"


class GrafanaServer:
    """`url`; what it holds; and `next_answers`, (status, body) given in place of the usual ones."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        self.sources: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.annotations: list[dict[str, Any]] = []
        self.next_answers: list[tuple[int, str]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.url = ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, object]:
        match method, urlsplit(path).path.removeprefix("/api").split("/")[1:]:
            case "GET", ["health"]:
                return 200, {"database": "ok", "version": "11.6.0", "commit": "abc"}
            case "POST", ["folders"]:
                return self._make_folder(body["uid"], body["title"])
            case "GET", ["folders"]:
                return 200, [{"uid": uid, "title": title} for uid, title in self.folders.items()]
            case "POST", ["datasources"]:
                return self._make_source(body)
            case "GET", ["datasources", "name", name]:
                known = self.sources.get(unquote(name))
                return (404, {"message": "Data source not found"}) if known is None else (200, known)
            case "POST", ["dashboards", "db"]:
                return self._save(body)
            case "POST", ["annotations"]:
                self.annotations.append(body)
                return 200, {"message": "Annotation added", "id": len(self.annotations)}
            case "GET", ["annotations"]:
                wanted = set(parse_qs(urlsplit(path).query)["tags"])
                return 200, [mark for mark in self.annotations if wanted <= set(mark["tags"])]
        return 404, {"message": "Not found"}

    def _make_folder(self, uid: str, title: str) -> tuple[int, object]:
        if uid in self.folders or title in self.folders.values():
            return 412, {"message": "a folder with that name already exists", "status": "name-exists"}
        self.folders[uid] = title
        return 200, {"uid": uid, "title": title}

    def _make_source(self, body: dict[str, Any]) -> tuple[int, object]:
        if body["name"] in self.sources:
            return 409, {"message": "data source with the same name already exists"}
        self.sources[body["name"]] = {**body, "uid": f"uid-{len(self.sources)}"}
        return 200, {"message": "Datasource added", "name": body["name"]}

    def _save(self, body: dict[str, Any]) -> tuple[int, object]:
        board = body["dashboard"]
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if board["uid"] in self.dashboards and not body["overwrite"]:
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        self.dashboards[board["uid"]] = body
        return 200, {"uid": board["uid"], "url": f"/d/{board['uid']}/{board['uid']}", "status": "success"}


@contextmanager
def grafana_server() -> Iterator[GrafanaServer]:
    state = GrafanaServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            state.hold.wait(10)
            if state.next_answers:
                status, text = state.next_answers.pop(0)
            elif self.headers.get("authorization") != f"Bearer {TOKEN}":
                status, text = 401, json.dumps({"message": "Invalid API key"})
            else:
                status, answer = state.answer(method, self.path, body)
                text = json.dumps(answer)
            self.send_response(status)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        state.hold.set()
        server.shutdown()
        server.server_close()
