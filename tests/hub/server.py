"""A Hugging Face Hub on 127.0.0.1: repositories with revisions, and failures on request.

It answers requests like the Hub: commits and file lists on the API, small files directly, large files by a
redirect to another origin (a second port), errors with their `X-Error-Code`. So `from_pretrained`,
`load_dataset`, `snapshot_download` and `HfApi` run unchanged against it. With the token, clients can also
create repositories, upload files (by LFS; set HF_HUB_DISABLE_XET) and open pull requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["models", "datasets"]
LARGE = (".safetensors", ".bin", ".pt", ".parquet")
TOKEN = "hf_loopback"  # the token that opens gated repositories


@dataclass
class Fault:
    """A failure of requests that match a regular expression (of `METHOD /path`)."""

    pattern: str
    status: int | None = None  # answer with this status
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None  # close the connection after this many bytes of the body
    delay: float = 0.0
    drip: float = 0.0  # seconds between two bytes of headers that never end
    times: int = 10**9


@dataclass
class Repo:
    """One repository: its commits, and the branches and tags that point at them."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False

    def commit(self, files: Mapping[str, bytes], ref: str) -> str:
        """Add a commit with these files, move `ref` there, and return its id."""
        commit = hashlib.sha1(b"".join(k.encode() + v for k, v in sorted(files.items()))).hexdigest()
        self.commits[commit] = dict(files)
        self.refs[ref] = commit
        return commit


class LoopbackHub:
    """The Hub and its content-delivery origin, on two ports; use it as a context manager."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.uploads: dict[str, bytes] = {}  # large files by their SHA-256
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.sent = 0  # bytes of bodies
        self._lock = threading.Lock()
        self._hub = _server(_HubHandler, self)
        self._cdn = _server(_CdnHandler, self)

    def __enter__(self) -> LoopbackHub:
        for server in (self._hub, self._cdn):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_port}"

    @property
    def cdn_url(self) -> str:
        return f"http://127.0.0.1:{self._cdn.server_port}"

    def add(
        self,
        kind: Kind,
        name: str,
        files: Path | Mapping[str, bytes],
        *,
        ref: str = "main",
        gated: bool = False,
    ) -> str:
        """Commit the files of a folder, or a mapping, to `name`; move `ref` there; return the commit."""
        if isinstance(files, Path):
            files = {
                str(p.relative_to(files)): p.read_bytes() for p in sorted(files.rglob("*")) if p.is_file()
            }
        repo = self.repos.setdefault((kind, name), Repo())
        repo.gated = gated
        return repo.commit(files, ref)

    def fail(self, pattern: str, **fault: Any) -> None:
        """Let requests that match `pattern` fail from now on."""
        self.faults.append(Fault(pattern, **fault))

    def heal(self) -> None:
        """Remove all failures, and clear the recorded requests."""
        self.faults.clear()
        self.requests.clear()
        self.sent = 0

    def take_fault(self, request: str) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.pattern, request):
                    fault.times -= 1
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # on a busy machine, no connection is refused
    hub: LoopbackHub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection early."""


def _server(handler: type[BaseHTTPRequestHandler], hub: LoopbackHub) -> _Server:
    server = _Server(("127.0.0.1", 0), handler)
    server.hub = hub
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self._body()
        fault = self.server.hub.take_fault(f"{self.command} {self.path}")
        self._cut = None
        if fault is not None:
            time.sleep(fault.delay)
            if fault.drip:
                self.send_response_only(200)
                self.flush_headers()
                while True:  # until the client closes the connection
                    self.wfile.write(b"X")
                    time.sleep(fault.drip)
            if fault.status is not None:
                return self.reply(fault.status, b"injected", dict(fault.headers))
            self._cut = fault.cut
        return self.answer(unquote(urlsplit(self.path).path), parse_qs(urlsplit(self.path).query), body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        raise NotImplementedError

    def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            part = body if self._cut is None else body[: self._cut]
            self.server.hub.sent += len(part)
            self.wfile.write(part)
            if self._cut is not None:
                self.wfile.flush()
                self.connection.close()
                self.close_connection = True

    def reply_json(self, value: Any) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def reply_error(self, status: int, code: str) -> None:
        self.reply(status, code.encode(), {"X-Error-Code": code, "X-Error-Message": code})

    def reply_file(self, content: bytes, headers: Mapping[str, str]) -> None:
        """Send a file, or the requested range of it."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return self.reply(200, content, {**headers, "Accept-Ranges": "bytes"})
        start, end = int(asked[1]), int(asked[2] or len(content) - 1)
        if start >= len(content):
            return self.reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        span = f"bytes {start}-{min(end, len(content) - 1)}/{len(content)}"
        return self.reply(206, content[start : end + 1], {**headers, "Content-Range": span})


class _CdnHandler(_Handler):
    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> None:  # noqa: ARG002
        digest = path.removeprefix("/")
        if self.command == "PUT":
            right = hashlib.sha256(body).hexdigest() == digest
            if right:
                self.server.hub.uploads[digest] = body
            return self.reply(200 if right else 400)
        for repo in self.server.hub.repos.values():
            for files in repo.commits.values():
                for content in files.values():
                    if hashlib.sha256(content).hexdigest() == digest:
                        return self.reply_file(content, {"ETag": f'"{digest}"'})
        return self.reply(404)


class _HubHandler(_Handler):
    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        if self.command == "POST" and (change := _change(path)):
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.reply_error(401, "Unauthorized")
            return change(self, path, query, body)
        api = re.fullmatch(
            r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?", path
        )
        if api:
            kind, name, verb, revision, rest = api.groups()
            found = self._find(kind, name, revision or "main")
            if found is None:
                return None
            commit, files, _ = found
            if verb == "tree":
                return self._tree(
                    files, rest or "", query.get("recursive", ["false"])[0].lower() in ("true", "1")
                )
            if verb == "paths-info":
                asked = {v for k, vs in parse_qs(body.decode()).items() if k == "paths" for v in vs}
                asked |= set(json.loads(body).get("paths", [])) if body.startswith(b"{") else set()
                return self.reply_json([_entry(p, files[p]) for p in files if p in asked])
            siblings = [{"rfilename": p} for p in files]
            return self.reply_json(
                {"id": name, "sha": commit, "siblings": siblings, "private": False, "tags": []}
            )
        file = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if file:
            found = self._find("datasets" if file[1] else "models", file[2], file[3])
            return None if found is None else self._resolve(*found, file[4])
        return self.reply(404)

    def create(self, _path: str, _query: dict[str, list[str]], body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        kind = f"{asked.get('type') or 'model'}s"
        made = {"url": f"{self.server.hub.url}/{name}", "name": name}
        if (kind, name) in self.server.hub.repos:
            return self.reply(409, json.dumps({"error": "it exists", **made}).encode())
        self.server.hub.repos[kind, name] = repo = Repo()
        repo.commit({".gitattributes": b""}, "main")
        return self.reply_json(made)

    def preupload(self, _path: str, _query: dict[str, list[str]], body: bytes) -> None:
        files = [
            {"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(LARGE) else "regular"}
            for f in json.loads(body)["files"]
        ]
        self.reply_json({"files": [f | {"shouldIgnore": False, "oid": None} for f in files]})

    def lfs(self, path: str, _query: dict[str, list[str]], body: bytes) -> None:
        if path.endswith("/verify"):
            known = json.loads(body)["oid"] in self.server.hub.uploads
            return self.reply(200 if known else 404)
        verify = {"href": f"{self.server.hub.url}{path}/verify", "header": {}}
        objects = [
            {
                "oid": one["oid"],
                "size": one["size"],
                "actions": {
                    "upload": {"href": f"{self.server.hub.cdn_url}/{one['oid']}", "header": {}},
                    "verify": verify,
                },
            }
            for one in json.loads(body)["objects"]
        ]
        return self.reply_json({"transfer": "basic", "objects": objects})

    def commit(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        _, _, kind, owner, name, _, revision = path.split("/", 6)
        repo = self.server.hub.repos.get((kind, f"{owner}/{name}"))
        if repo is None:
            return self.reply_error(404, "RepoNotFound")
        files = dict(repo.commits[repo.refs[revision]])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.hub.uploads[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        url, wanted = f"{self.server.hub.url}/{owner}/{name}", "create_pr" in query
        number = 1 + sum(ref.startswith("refs/pr/") for ref in repo.refs)
        commit = repo.commit(files, f"refs/pr/{number}" if wanted else revision)
        more = {"pullRequestUrl": f"{url}/discussions/{number}"} if wanted else {}
        return self.reply_json(
            {"success": True, "commitOid": commit, "commitUrl": f"{url}/commit/{commit}", **more}
        )

    def validate(self, *_: object) -> None:
        self.reply_json({"errors": [], "warnings": []})

    def _find(self, kind: str, name: str, revision: str) -> tuple[str, dict[str, bytes], Repo] | None:
        repo = self.server.hub.repos.get((kind, name))
        if repo is None:
            self.reply_error(401, "RepoNotFound")
            return None
        commit = repo.refs.get(revision, revision)
        if commit not in repo.commits:
            self.reply_error(404, "RevisionNotFound")
            return None
        return commit, repo.commits[commit], repo

    def _resolve(self, commit: str, files: dict[str, bytes], repo: Repo, path: str) -> None:
        who = self.headers.get("Authorization")
        if repo.gated and who != f"Bearer {TOKEN}":
            return self.reply_error(403 if who else 401, "GatedRepo")
        if path not in files:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        content = files[path]
        if path.endswith(LARGE):
            digest = hashlib.sha256(content).hexdigest()
            return self.reply(
                302,
                b"",
                {
                    "Location": f"{self.server.hub.cdn_url}/{digest}",
                    "X-Repo-Commit": commit,
                    "X-Linked-Etag": f'"{digest}"',
                    "X-Linked-Size": str(len(content)),
                },
            )
        return self.reply_file(content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit})

    def _tree(self, files: dict[str, bytes], under: str, recursive: bool) -> None:
        start = f"{under}/" if under else ""
        inside = {path: content for path, content in files.items() if path.startswith(start)}
        if under and not inside:
            return self.reply_error(404, "EntryNotFound")
        folders: dict[str, None] = {}
        entries = []
        for path, content in inside.items():
            first, slash, _ = path.removeprefix(start).partition("/")
            if slash:
                folders[start + first] = None
            if recursive or not slash:
                entries.append(_entry(path, content))
        listed = [{"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in folders]
        return self.reply_json([*listed, *entries])


_CHANGES: dict[str, Callable[[_HubHandler, str, dict[str, list[str]], bytes], None]] = {
    r"/api/repos/create": _HubHandler.create,
    r"/api/validate-yaml": _HubHandler.validate,
    r"/api/[^/]+/[^/]+/[^/]+/preupload/.+": _HubHandler.preupload,
    r"/api/[^/]+/[^/]+/[^/]+/commit/.+": _HubHandler.commit,
    r"/(?:datasets/)?[^/]+/[^/]+\.git/info/lfs/objects/batch(?:/verify)?": _HubHandler.lfs,
}


def _change(path: str) -> Callable[[_HubHandler, str, dict[str, list[str]], bytes], None] | None:
    """Return the handler of a request that changes something."""
    return next((answer for pattern, answer in _CHANGES.items() if re.fullmatch(pattern, path)), None)


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
    if path.endswith(LARGE):
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
    return entry
