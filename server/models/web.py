"""Source `https:`: a file on any web server. Resumes a broken fetch where the server can prove that the file is the same.

The bytes gather in a `.part` file beside a note of the validator (ETag or Last-Modified) they were served under; only
with one is a fetch resumed, by `Range` with `If-Range`, so that two versions of a file are never glued together.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from server.models.errors import FetchFailed
from server.models.progress import Progress

if TYPE_CHECKING:
    import httpx

_TRIES = 5
_PAUSE_S = 1.0
_CONNECT_TIMEOUT_S = 15.0
_READ_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class WebSource:
    """The file at `url`."""

    text: str
    url: str

    @staticmethod
    def parse(text: str) -> WebSource:
        """An https URL whose path ends in a file name; plain http only to this machine. Raises ValueError."""
        parts = urlsplit(text)
        if not parts.hostname:
            raise ValueError("the URL has no host")
        if parts.scheme != "https" and not _is_loopback(parts.hostname):
            raise ValueError("plain http is taken from this machine only: use https")
        if not _file_name(text):
            raise ValueError("the URL must end in a file's name")
        return WebSource(text, text)

    def fetch(self, folder: Path, progress: Progress) -> tuple[Path, ...]:
        """The file, put into `folder`. Raises FetchFailed; what was fetched then stays there for the next try."""
        download = _Download(self.url, folder / _file_name(self.url), progress)
        return (download.run(),)


def _file_name(url: str) -> str:
    return PurePosixPath(unquote(urlsplit(url).path)).name


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Restart(Exception):
    """What is in the part file is of no use: begin again."""


class _Download:
    """One fetch of `url` into `target`, over as many connections as it takes."""

    def __init__(self, url: str, target: Path, progress: Progress) -> None:
        self.url = url
        self.target = target
        self.part = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.progress = progress

    def run(self) -> Path:
        import httpx

        timeout = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        with httpx.Client(follow_redirects=True, timeout=timeout) as client:
            failure = "no reason"
            for attempt in range(_TRIES):
                had = self._n_done()
                try:
                    return self._fetch_rest(client)
                except _Restart:
                    failure = "the server's answers don't fit together"
                    self._discard()
                except httpx.InvalidURL as error:
                    raise FetchFailed(f"{self.url}: {error}") from error
                except httpx.HTTPError as error:
                    failure = str(error) or type(error).__name__
                    if attempt + 1 < _TRIES and self._n_done() == had:
                        time.sleep(_PAUSE_S * attempt)
                except OSError as error:
                    raise FetchFailed(f"can't write {self.part}: {error.strerror or error}") from error
        kept = f" ({self._n_done()} bytes are kept, the next try resumes)" if self._n_done() and self._validator() else ""
        raise FetchFailed(f"can't fetch {self.url}: {failure}{kept}")

    def _fetch_rest(self, client: httpx.Client) -> Path:
        """One connection. Returns the finished file; raises _Restart or what httpx raises."""
        done, validator = self._n_done(), self._validator()
        headers = {"Accept-Encoding": "identity"}
        if done and validator:
            headers |= {"Range": f"bytes={done}-", "If-Range": validator}
        with client.stream("GET", self.url, headers=headers) as response:
            self._check_status(response)
            resumed = response.status_code == 206
            if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
                raise _Restart
            start = done if resumed else 0
            total = self._total(response, start)
            if not resumed:
                self._write_note(response)
            self.progress.begin(self.target.name, start, total)
            self._append(response, "ab" if resumed else "wb")
        return self._finish(total)

    def _check_status(self, response: httpx.Response) -> None:
        """Raise _Restart when our range is past the end, and FetchFailed for an answer that another try won't change."""
        if response.url.scheme != "https" and self.url.startswith("https:"):
            raise FetchFailed(f"{self.url} redirects to an unencrypted address")
        if response.status_code == 416:
            raise _Restart
        if response.status_code not in (200, 206):
            message = f"{self.url} answers {response.status_code} {response.reason_phrase}"
            if response.status_code in (408, 429) or response.status_code >= 500:
                import httpx

                raise httpx.HTTPStatusError(message, request=response.request, response=response)
            raise FetchFailed(message)

    @staticmethod
    def _total(response: httpx.Response, start: int) -> int | None:
        length = response.headers.get("Content-Length", "")
        return start + int(length) if length.isdigit() else None

    def _append(self, response: httpx.Response, mode: str) -> None:
        with self.part.open(mode) as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                self.progress.advance(len(chunk))

    def _finish(self, total: int | None) -> Path:
        if total is not None and self._n_done() != total:
            raise _Restart
        os.replace(self.part, self.target)
        self.note.unlink(missing_ok=True)
        return self.target

    def _n_done(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _validator(self) -> str | None:
        """What the part file's bytes were served under, if it was for this URL and is strong enough for If-Range."""
        try:
            note = json.loads(self.note.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return note["validator"] if note.get("url") == self.url else None

    def _write_note(self, response: httpx.Response) -> None:
        etag = response.headers.get("ETag", "")
        strong = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
        self.note.write_text(json.dumps({"url": self.url, "validator": strong}), "utf-8")

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
