"""Who may import whom: each arrow one way, told from the import statements, those inside functions included."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ARROWS: dict[str, tuple[str, ...]] = {
    # area → areas that it may import besides itself and what COMMON lists for its package
    "converters.grammar": (),
    "converters.automata": ("converters.grammar",),
    "converters.choice": ("converters.automata", "converters.grammar"),
    "converters.regex": ("converters.automata", "converters.grammar"),
    "converters.jsonschema": ("converters.regex", "converters.automata", "converters.grammar"),
    "converters.lark": ("converters.jsonschema", "converters.regex", "converters.automata", "converters.grammar"),
    "converters.structural_tag": (
        "converters.tools",
        "converters.lark",
        "converters.jsonschema",
        "converters.regex",
        "converters.automata",
        "converters.grammar",
    ),
    "converters.tools": ("converters.jsonschema", "converters.regex", "converters.automata", "converters.grammar"),
    "server.engine": ("converters.grammar",),
    "server.models": (
        *("server.engine.client", "server.engine.messages"),
        *("server.infill_form", "server.metrics", "server.model_status"),
    ),
    "server.chat": (
        *("server.engine.client", "server.engine.messages", "server.constraints", "server.compile"),
        *("server.infill_form", "server.metrics", "server.model_status", "converters"),
    ),
    "server.api": (
        *("server.chat", "server.constraints", "server.metrics", "server.model_status", "server.values"),
        *("converters.errors", "converters.constraint"),
    ),
    "server.compile": ("server.chat.constraint", "server.engine.channel", "server.engine.worker", "converters"),
    "server.bench": (),
    "server.constraints": ("converters", "server.chat.types", "server.values"),
    "server.infill_form": (),
    "server.values": ("converters.constraint", "server.chat.types"),
    "server.model_status": ("server.engine.messages",),
    "server.metrics": (),
    "server.json_text": ("server.large_json", "converters.constraint"),
    "server.large_json": (),
    "server.settings": (),
    "server.errors": (),
}

COMMON: dict[str, tuple[str, ...]] = {
    "converters": (
        "converters.constraint",
        "converters.errors",
        "converters.limits",
        "converters.options",
        "converters.record",
    ),
    "server": ("server.errors", "server.settings", "server.json_text", "converters.limits"),
}

DIALECTS = ("openai", "responses", "anthropic", "ollama", "native", "vectors")

FOREIGN: dict[str, frozenset[str]] = {
    "converters": frozenset({"typing_extensions", "lark", "jsonschema", "referencing"}),
}


def sources(package: str) -> Iterator[tuple[str, Path]]:
    """Every module of the package: dotted name and file."""
    for path in sorted((ROOT / package).rglob("*.py")):
        words = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(words[:-1] if words[-1] == "__init__" else words), path


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names that the file imports; `from a import b` counts as a.b where that is a module, else as a."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {
                f"{node.module}.{alias.name}" if is_module(f"{node.module}.{alias.name}") else node.module
                for alias in node.names
            }
    return frozenset(found)


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def is_in(name: str, areas: tuple[str, ...]) -> bool:
    return any(name == area or name.startswith(area + ".") for area in areas)


ALL = [module for package in ("converters", "server") for module in sources(package)]


@pytest.mark.parametrize(("module", "path"), ALL, ids=[module for module, _ in ALL])
def test_arrows_point_one_way(module: str, path: Path) -> None:
    package = module.split(".", maxsplit=1)[0]
    ours = {name for name in imports(path) if name.split(".")[0] in ("server", "converters", "tests")}
    assert not {name for name in ours if name.startswith("tests")}, "the product knows nothing of its tests"
    if package == "converters":
        assert not {name for name in ours if name.startswith("server")}, "the compiler knows nothing of servers"
    area = next((area for area in ARROWS if is_in(module, (area,))), None)
    if area is None:
        return
    allowed = (area, *ARROWS[area], *COMMON[package])
    assert not {name for name in ours if not is_in(name, allowed)}, f"{area} may import {', '.join(allowed)}"


@pytest.mark.parametrize(("module", "path"), ALL, ids=[module for module, _ in ALL])
def test_third_parties_stay_where_they_belong(module: str, path: Path) -> None:
    third = (
        {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"server", "converters", "__future__"}
    )
    package = module.split(".", maxsplit=1)[0]
    if package in FOREIGN:
        assert third <= FOREIGN[package]
    if module != "server.engine.llama":
        assert "llama_cpp" not in third
    if module == "server.chat.types":
        assert not third & {"pydantic", "fastapi"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_dialect_imports_another(dialect: str) -> None:
    others = tuple(f"server.api.{name}" for name in DIALECTS if name != dialect)
    own = [(module, path) for module, path in ALL if is_in(module, (f"server.api.{dialect}",))]
    assert own
    assert not {(module, name) for module, path in own for name in imports(path) if is_in(name, others)}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("server.app", ("llama_cpp", "numpy", "prometheus_client")),
        ("server.cli", ("llama_cpp", "numpy", "fastapi", "httpx", "huggingface_hub", "rich", "jinja2", "pydantic", "lark")),
    ],
)
def test_what_is_not_loaded_until_it_is_needed(module: str, absent: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print([name for name in {absent!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stderr
