"""models.txt: one model a line, `alias  source  key=value …`, `#` comments. The first line is the default model.

Here the file is found and read; what a source is, is told by `sources`, and nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from server.models.errors import CatalogueError, ModelFileMissing, UnknownModel
from server.models.gguf import model_name
from server.models.sources import Source, has_scheme, parse_source

_TOKEN = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
_QUOTES = re.compile(r"""(["'])(.*?)\1""")
_ALIAS = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_RESERVED = "default"
_TEMPLATE_ENDINGS = (".jinja", ".jinja2", ".j2")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The keys of a line. None: what the command line, or else the model, says.

    ctx: context of one slot, in tokens. parallel: slots. gpu_layers: -1 is all. template: a built-in chat template's name
    or a Jinja file (relative to models.txt). draft: alias of the small model that drafts. sha256: one digest per file.
    aliases: further names that requests may use.
    """

    ctx: int | None = None
    gpu_layers: int | None = None
    parallel: int | None = None
    threads: int | None = None
    batch: int | None = None
    template: str | None = None
    codec: str | None = None
    embedding: bool = False
    draft: str | None = None
    sha256: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("must be a whole number from 1 up")
    return int(text)


def _layers(text: str) -> int:
    if text in ("all", "-1"):
        return -1
    if not text.isdecimal():
        raise ValueError("must be a whole number, or all")
    return int(text)


def _flag(text: str) -> bool:
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if text.lower() not in known:
        raise ValueError("must be true or false")
    return known[text.lower()]


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _digests(text: str) -> tuple[str, ...]:
    digests = tuple(text.lower().split(","))
    if not all(_SHA256.match(digest) for digest in digests):
        raise ValueError("must be 64 hexadecimal digits (for a split model one such per part, with commas between)")
    return digests


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(_ALIAS.match(name) and name != _RESERVED for name in names) or len(set(names)) < len(names):
        raise ValueError("must be names with commas between")
    return names


KEYS: Mapping[str, Callable[[str], Any]] = {
    "ctx": _count,
    "gpu_layers": _layers,
    "parallel": _count,
    "threads": _count,
    "batch": _count,
    "template": _text,
    "codec": _text,
    "embedding": _flag,
    "draft": _text,
    "sha256": _digests,
    "aliases": _names,
}


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model under its alias. `base` is the folder that relative paths of its line start from; `line` 0: not of a file."""

    alias: str
    source: Source
    options: ModelOptions = field(default_factory=ModelOptions)
    base: Path = field(default_factory=Path)
    line: int = 0

    @property
    def template_path(self) -> Path | None:
        """The Jinja file that `template=` names; None where it names a built-in template, or is absent."""
        template = self.options.template
        if template is None or not template.endswith(_TEMPLATE_ENDINGS):
            return None
        return self.base / Path(template).expanduser()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The entries of one models.txt, in order."""

    entries: tuple[ModelEntry, ...]
    path: str

    @property
    def default(self) -> ModelEntry:
        """The first line. Raises CatalogueError when there is none."""
        if not self.entries:
            raise CatalogueError("it names no model", path=self.path)
        return self.entries[0]

    def check_templates(self, known: Collection[str]) -> None:
        """Raise CatalogueError for a `template=` that is neither one of `known` nor a file."""
        for entry in self.entries:
            template, path = entry.options.template, entry.template_path
            if path is not None and not path.is_file():
                raise CatalogueError(f"template={template}: FileNotFoundError: no such file", path=self.path, line=entry.line)
            if template is not None and path is None and template not in known:
                reason = f"template={template}: neither a built-in template ({', '.join(known)}) nor a .jinja file"
                raise CatalogueError(reason, path=self.path, line=entry.line)

    @property
    def aliases(self) -> tuple[str, ...]:
        """All aliases, the default first."""
        return tuple(entry.alias for entry in self.entries)

    def get(self, alias: str) -> ModelEntry | None:
        """The entry of exactly that alias, or that has it among its further names."""
        named = (entry for entry in self.entries if alias in entry.options.aliases)
        return next((entry for entry in self.entries if entry.alias == alias), next(named, None))

    def resolve(self, name: str, cwd: Path | None = None) -> ModelEntry:
        """What the command line means by `name`: an alias, else a source, else a path relative to `cwd`.

        Raises UnknownModel, and ModelFileMissing for what can only be a path.
        """
        entry = self.default if name == _RESERVED else self.get(name)
        if entry is not None:
            return entry
        base = cwd if cwd is not None else Path.cwd()
        is_path = name.lower().endswith(".gguf") or "\\" in name or name.startswith((".", "/", "~"))
        if not has_scheme(name) and not (base / Path(name).expanduser()).is_file():
            if is_path:
                raise ModelFileMissing(base / Path(name).expanduser())
            raise UnknownModel(name, self.aliases)
        try:
            source = parse_source(name, base)
        except ValueError as error:
            raise CatalogueError(str(error), path=name) from error
        return ModelEntry(_alias_of(source), source, base=base)

    def with_first(self, entries: tuple[ModelEntry, ...]) -> Catalogue:
        """The same with `entries` in front: they take the place of those of the same alias."""
        taken = {entry.alias for entry in entries}
        return replace(self, entries=entries + tuple(entry for entry in self.entries if entry.alias not in taken))


def _alias_of(source: Source) -> str:
    """A name for a model that has none: its file's or repository's."""
    text = source.text.partition("#")[2] or source.text.split("?")[0]
    return model_name(re.split(r"[/\\]", text)[-1]) or source.text


def parse_catalogue(text: str, *, path: str, base: Path) -> Catalogue:
    """Read the text of a models.txt. Raises CatalogueError with the number of the bad line."""
    entries: dict[str, ModelEntry] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        try:
            entry = _parse_line(line, base, number)
            if entry is not None and entry.alias in entries:
                raise ValueError(f"alias {entry.alias!r} is already on line {entries[entry.alias].line}")
        except ValueError as error:
            raise CatalogueError(str(error), path=path, line=number) from error
        if entry is not None:
            entries[entry.alias] = entry
    catalogue = Catalogue(tuple(entries.values()), path)
    _check_drafts(catalogue)
    _check_names(catalogue)
    return catalogue


def _check_drafts(catalogue: Catalogue) -> None:
    for entry in catalogue.entries:
        draft = entry.options.draft
        if draft is not None and (draft == entry.alias or draft not in catalogue.aliases):
            raise CatalogueError(f"draft={draft} is not another line's alias", path=catalogue.path, line=entry.line)


def _check_names(catalogue: Catalogue) -> None:
    """No further name may be another line's."""
    owners = {entry.alias: entry for entry in catalogue.entries}
    for entry in catalogue.entries:
        for name in entry.options.aliases:
            if (owner := owners.setdefault(name, entry)) is not entry or name == entry.alias:
                reason = f"aliases={name}: that name is already on line {owner.line}"
                raise CatalogueError(reason, path=catalogue.path, line=entry.line)


def _parse_line(line: str, base: Path, number: int) -> ModelEntry | None:
    words = _split_line(line)
    if not words:
        return None
    if len(words) < 2:
        raise ValueError(f"{words[0]!r} has no source: a line is `alias  source  key=value …`")
    alias, source, *pairs = words
    if not _ALIAS.match(alias) or alias == _RESERVED:
        raise ValueError(f"{alias!r} can't be an alias")
    return ModelEntry(alias, parse_source(source, base), _parse_options(pairs), base, number)


def _split_line(line: str) -> list[str]:
    """Words of a line: blanks part them, quotes keep blanks, a `#` at the start of a word begins a comment."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        if line[at] == "#":
            break
        found = _TOKEN.match(line, at)
        if found is None or (found.end() < len(line) and not line[found.end()].isspace()):
            raise ValueError(f"a quote is not closed: {line[at:].strip()}")
        words.append(_QUOTES.sub(r"\2", found[0]))
        at = found.end()
    return words


def _parse_options(pairs: list[str]) -> ModelOptions:
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is not key=value")
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r} (known: {', '.join(KEYS)})")
        if key in options:
            raise ValueError(f"{key} is set twice")
        try:
            options[key] = KEYS[key](value)
        except ValueError as error:
            raise ValueError(f"{key} {error}, not {value!r}") from None
    return ModelOptions(**options)


def find_catalogue(explicit: str | None = None, *, cwd: Path | None = None) -> Path:
    """The models.txt that counts: `explicit`, ./models.txt, the user's configuration folder, the copy inside the package.

    Raises CatalogueError when `explicit` is given and isn't there.
    """
    if explicit is not None:
        path = Path(explicit).expanduser()
        if not path.is_file():
            raise CatalogueError("FileNotFoundError: there is no such file", path=explicit)
        return path
    import platformdirs

    here = Path(__file__)
    candidates = (
        (cwd if cwd is not None else Path.cwd()) / "models.txt",
        platformdirs.user_config_path("gramserve", appauthor=False) / "models.txt",
        here.with_name("models.txt"),
        here.parents[2] / "models.txt",  # a checkout: the wheel's copy is made from this one
    )
    for path in candidates:
        if path.is_file():
            return path
    raise CatalogueError("found neither here, nor in the configuration folder, nor in the package", path="models.txt")


def load_catalogue(explicit: str | None = None, *, cwd: Path | None = None) -> Catalogue:
    """Find and read models.txt. Raises CatalogueError."""
    path = find_catalogue(explicit, cwd=cwd)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"can't be read: {error}", path=str(path)) from error
    return parse_catalogue(text, path=str(path), base=path.absolute().parent)
