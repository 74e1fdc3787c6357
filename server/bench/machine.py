"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the versions, without a name or a path that would tell whose it is."""

    processor: str
    n_cores: int
    memory_gib: int | None
    system: str
    python: str
    versions: tuple[str, ...]

    def __str__(self) -> str:
        memory = f", {self.memory_gib} GiB of memory" if self.memory_gib else ""
        return (
            f"{self.processor}, {self.n_cores} cores{memory}; {self.system}; Python {self.python}; {', '.join(self.versions)}"
        )


def describe_machine() -> Machine:
    """This machine."""
    return Machine(
        processor=_processor(),
        n_cores=os.cpu_count() or 1,
        memory_gib=_memory_gib(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        versions=tuple(f"{name} {found}" for name in ("gramserve", "llama-cpp-python") if (found := _version(name))),
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
