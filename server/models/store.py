"""The cache of fetched models: one folder per source, complete or not there at all.

A model is fetched into `incoming/` below its folder, checked, moved up, and only then named in `model.json`: a folder
without that file counts as empty. A file lock keeps two processes from fetching the same model.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from server.models.catalogue import ModelEntry
from server.models.errors import ChecksumMismatch, FetchFailed, ModelError, NotGguf
from server.models.gguf import check_gguf, sha256_of, split_parts
from server.models.local import LocalSource
from server.models.progress import Progress, Silent
from server.models.sources import RemoteSource

_MANIFEST = "model.json"
_INCOMING = "incoming"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a cached model. `name` is its name in the model's folder."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A complete model in the cache: where it came from, and its files, first part first."""

    source: str
    files: tuple[StoredFile, ...]

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size_bytes for file in self.files)


def default_root(explicit: str | None = None) -> Path:
    """The cache folder: `explicit`, else $GRAMSERVE_CACHE, else the platform's convention."""
    chosen = explicit or os.environ.get("GRAMSERVE_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("gramserve", appauthor=False)


class Store:
    """The models below the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, source: RemoteSource) -> Path:
        """Where a source's files lie; the digest keeps two sources of one file name apart."""
        words = re.sub(r"[^A-Za-z0-9._]+", "-", re.split(r"[/#]", source.text)[-1]).strip("-.").lower()[:60]
        return self.root / "models" / f"{words}-{hashlib.sha256(source.text.encode()).hexdigest()[:12]}"

    def stored(self, source: RemoteSource) -> StoredModel | None:
        """What the cache has of a source; None when it has nothing complete."""
        folder = self.folder(source)
        try:
            data = json.loads((folder / _MANIFEST).read_text("utf-8"))
            model = StoredModel(data["source"], tuple(StoredFile(**file) for file in data["files"]))
            complete = all((folder / file.name).stat().st_size == file.size_bytes for file in model.files)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return model if complete and model.files and model.source == source.text else None

    def find(self, entry: ModelEntry) -> tuple[Path, str | None] | None:
        """The model's (first) file if it is here, its checksum not looked at again, and the sha256 of a cached single file.

        Raises ModelFileMissing.
        """
        source = entry.source
        if isinstance(source, LocalSource):
            return source.locate()[0], None
        model = self.stored(source)
        if model is None or not _agrees(model, entry.options.sha256):
            return None
        return self.folder(source) / model.files[0].name, model.files[0].sha256 if len(model.files) == 1 else None

    def locate(self, entry: ModelEntry) -> Path | None:
        """The model's (first) file if it is here already. Raises ModelFileMissing, NotGguf, ChecksumMismatch for local ones."""
        source = entry.source
        if isinstance(source, LocalSource):
            return self._check_local(entry, source)
        found = self.find(entry)
        return None if found is None else found[0]

    def fetch(self, entry: ModelEntry, progress: Progress | None = None, waiting: Callable[[], None] | None = None) -> Path:
        """The model's (first) file, fetched if need be. `waiting` is called when another process fetches it just now.

        Raises ModelError. A failed fetch leaves what was there before as it was.
        """
        source = entry.source
        found = self.locate(entry)
        if found is not None or isinstance(source, LocalSource):
            assert found is not None  # a local model that can't be located raises
            return found
        folder = self.folder(source)
        try:
            (folder / _INCOMING).mkdir(parents=True, exist_ok=True)
            with _locked(folder, waiting):
                return self.locate(entry) or self._fetch(entry, source, progress or Silent())
        except OSError as error:
            raise FetchFailed(f"can't store {entry.alias} in {folder}: {error.strerror or error}") from error

    def remove(self, entry: ModelEntry) -> int:
        """Delete the model's files from the cache, started fetches included; returns the bytes freed. Raises ModelError."""
        if isinstance(entry.source, LocalSource):
            raise ModelError(f"{entry.alias} is a file of yours, not of the cache; delete it yourself: {entry.source.path}")
        folder = self.folder(entry.source)
        if not folder.exists():
            return 0
        try:
            n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            with _locked(folder, None):
                (folder / _MANIFEST).unlink(missing_ok=True)  # first: from here on the model counts as not there
                for path in folder.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif path.name != _lock_path(folder).name:
                        path.unlink()
            shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            raise ModelError(f"can't remove {entry.alias}: {error.strerror or type(error).__name__}") from error
        return n_bytes

    def _fetch(self, entry: ModelEntry, source: RemoteSource, progress: Progress) -> Path:
        folder = self.folder(source)
        arrived = source.fetch(folder / _INCOMING, progress)
        try:
            files = tuple(_describe(path) for path in arrived)
            _check_arrived(entry, arrived, files)
        except ModelError:
            for path in arrived:
                path.unlink(missing_ok=True)
            raise
        for path in arrived:
            os.replace(path, folder / path.name)
        _write_manifest(folder / _MANIFEST, StoredModel(source.text, files))
        shutil.rmtree(folder / _INCOMING, ignore_errors=True)
        return folder / files[0].name

    def _check_local(self, entry: ModelEntry, source: LocalSource) -> Path:
        parts = source.locate()
        if entry.options.sha256:
            _check_digests(entry, tuple(_describe(part) for part in parts), "it is left as it is and not loaded")
        return parts[0]


def _agrees(model: StoredModel, sha256: tuple[str, ...]) -> bool:
    return not sha256 or sha256 == tuple(file.sha256 for file in model.files)


def _describe(path: Path) -> StoredFile:
    return StoredFile(path.name, path.stat().st_size, sha256_of(path))


def _check_arrived(entry: ModelEntry, arrived: tuple[Path, ...], files: tuple[StoredFile, ...]) -> None:
    _check_digests(entry, files, "the fetched file was dropped, and nothing that was here before was touched")
    for path in arrived:
        check_gguf(path)
    expected = split_parts(files[0].name)
    if tuple(file.name for file in files) != expected:
        missing = next(name for name in expected if name not in {file.name for file in files})
        raise NotGguf(arrived[0], f"(alone: it is one part of a split model, and {entry.source.text} doesn't bring {missing})")


def _check_digests(entry: ModelEntry, files: tuple[StoredFile, ...], consequence: str) -> None:
    expected = entry.options.sha256
    if expected and len(expected) != len(files):
        raise ModelError(f"{entry.alias} has {len(files)} files, but models.txt gives {len(expected)} sha256 digests")
    for file, digest in zip(files, expected, strict=False):
        if file.sha256 != digest:
            raise ChecksumMismatch(file.name, expected=digest, actual=file.sha256, consequence=consequence)


def _write_manifest(path: Path, model: StoredModel) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(model), indent=1), "utf-8")
    os.replace(scratch, path)


def _lock_path(folder: Path) -> Path:
    return folder / "lock"


@contextmanager
def _locked(folder: Path, waiting: Callable[[], None] | None) -> Iterator[None]:
    """Hold the folder's file lock; `waiting` is called once if another process has it."""
    import filelock

    lock = filelock.FileLock(str(_lock_path(folder)))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        if waiting is not None:
            waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
