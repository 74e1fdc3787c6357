"""How many threads llama.cpp should use: one a physical core that this process may really use.

ggml's workers spin while they wait for each other, so a thread too many costs far more than a thread too few.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_SMT_FROM = 5  # without topology data, machines from here on are taken to have two logical cores a physical one


def default_threads() -> int:
    """Physical cores, within the process's affinity and its container's CPU quota; at least one."""
    usable = _usable_cpus()
    cores = len({_siblings(cpu) for cpu in usable}) if _has_topology() else _guess(len(usable))
    return max(1, min(cores, _quota(), len(usable)))


def _usable_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _guess(n_logical: int) -> int:
    return n_logical if n_logical < _SMT_FROM else n_logical // 2


def _topology(cpu: int) -> Path:
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")


def _has_topology() -> bool:
    return _topology(0).exists()


def _siblings(cpu: int) -> str:
    """Names the physical core of a logical one."""
    try:
        return _topology(cpu).read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int:
    """Whole CPUs of the control group's quota (Linux containers), or a number larger than any machine."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            return max(1, int(quota) // int(period))
    return 1 << 16
