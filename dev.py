"""The project's tasks, the same on Linux, macOS and Windows: `python3 dev.py TASK` (the Makefile forwards to here).

Uses the standard library only. Everything happens in .venv, which is made when it is missing; installing again takes no
time while pyproject.toml is what it was.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = SCRIPTS / ("python.exe" if os.name == "nt" else "python")
OLDEST = (3, 10)
COMPILERS = ("c++", "g++", "clang++", "cl")
CHECKED = ("server", "converters", "tests", "dev.py")
HEARTBEAT_S = 60.0

COMPILING = """\
Installing into .venv. llama-cpp-python has no wheel on the package index and is compiled here: about 10 minutes on two
cores, once (pip keeps the result for the next time). Its README, section "Pre-built Wheels", names an extra index with
ready ones: set PIP_EXTRA_INDEX_URL to that and PIP_PREFER_BINARY=1 to skip the compiling."""

NO_COMPILER = """\
No C++ compiler was found (looked for {names}), and llama-cpp-python has to be compiled. Either install one:
  Debian, Ubuntu   sudo apt install build-essential
  Fedora           sudo dnf install gcc-c++
  macOS            xcode-select --install
  Windows          Visual Studio Build Tools, with "Desktop development with C++"
or set PIP_EXTRA_INDEX_URL to the index of prebuilt wheels that llama-cpp-python's README names, then run this again."""

NO_VENV = """\
Python's venv module can't make .venv: {reason}
On Debian and Ubuntu: sudo apt install python3-venv"""


def fail(message: str) -> NoReturn:
    """End with `message` on stderr."""
    print(f"dev.py: {message}", file=sys.stderr)
    raise SystemExit(1)


def run(*command: str | Path) -> None:
    """Run a command in the repository; end with its status if it fails."""
    try:
        status = subprocess.run([str(word) for word in command], cwd=ROOT, check=False).returncode
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    if status:
        raise SystemExit(status)


def ensure_venv() -> None:
    """Make .venv if there is none (or none that works)."""
    if PYTHON.exists() and subprocess.run([str(PYTHON), "-c", "import pip"], check=False, capture_output=True).returncode == 0:
        return
    import venv

    print(f"Making {VENV.name} with Python {sys.version_info.major}.{sys.version_info.minor}.", file=sys.stderr)
    try:
        venv.EnvBuilder(with_pip=True, clear=VENV.exists(), symlinks=os.name != "nt").create(VENV)
    except (subprocess.CalledProcessError, ImportError, OSError) as error:
        shutil.rmtree(VENV, ignore_errors=True)
        fail(NO_VENV.format(reason=error))


def install(extra: str) -> None:
    """Install the project, editable, with an extra (`run` is none), unless that is what .venv has already."""
    ensure_venv()
    state = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()
    if any(_stamp(wider).exists() and _stamp(wider).read_text() == state for wider in WIDER[extra]):
        return
    if not _has_llama():
        print(COMPILING, file=sys.stderr)
    target = "." if extra == "run" else f".[{extra}]"
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", target]
    if _run_with_heartbeat(command) != 0:
        if not _has_llama() and not _has_compiler():
            fail(NO_COMPILER.format(names=", ".join(COMPILERS)))
        fail("pip could not install the project; its reason stands above")
    _stamp(extra).write_text(state)


WIDER: Mapping[str, Sequence[str]] = {"run": ("run", "test", "dev"), "test": ("test", "dev"), "dev": ("dev",)}


def _stamp(extra: str) -> Path:
    return VENV / f".installed-{extra}"


def _has_llama() -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('llama_cpp') is None)"
    return subprocess.run([str(PYTHON), "-c", code], check=False).returncode == 0


def _has_compiler() -> bool:
    if os.environ.get("CXX") or any(shutil.which(name) for name in COMPILERS):
        return True
    programs = os.environ.get("PROGRAMFILES(X86)", "")
    return os.name == "nt" and (Path(programs) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe").exists()


def _run_with_heartbeat(command: Sequence[str]) -> int:
    """Run a quiet, slow command; say every minute that it is still at it."""
    started_s = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            while (status := _wait(process, HEARTBEAT_S)) is None:
                print(f"  still installing ({(time.monotonic() - started_s) / 60:.0f} min)", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            process.terminate()
            raise SystemExit(130) from None
    return status


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def task_install(arguments: Sequence[str]) -> None:
    """make .venv and install everything that developing needs"""
    install("dev")


def task_serve(arguments: Sequence[str]) -> None:
    """install, then serve the default model (more words go to `gramserve serve`)"""
    install("run")
    _become(str(SCRIPTS / ("gramserve.exe" if os.name == "nt" else "gramserve")), "serve", *arguments)


def _become(*command: str) -> NoReturn:
    """Go on as `command`: in this very process where the system can, so that signals reach it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the console sends Ctrl-C to the child too, which ends in its own time
    raise SystemExit(subprocess.run(command, check=False).returncode)


def task_test(arguments: Sequence[str]) -> None:
    """install, then run the whole test suite: fast, live, client and conformance tests"""
    _pytest("not bench", arguments)


def task_fast(arguments: Sequence[str]) -> None:
    """run the tests that need no model: about a minute"""
    slow = [f"--ignore=tests/{name}" for name in ("bench", "clients", "conformance", "live")]  # what they import takes seconds
    _pytest("not live and not client and not conformance and not bench", (*slow, *arguments))


def task_live(arguments: Sequence[str]) -> None:
    """run the tests that decode with the default model"""
    _pytest("live or client", arguments)


def task_bench(arguments: Sequence[str]) -> None:
    """run the benchmarks, with their figures"""
    _pytest("bench", ("-s", *arguments))


def _pytest(markers: str, arguments: Sequence[str]) -> None:
    install("test")
    run(PYTHON, "-m", "pytest", "-q", "-m", markers, *arguments)


def task_lint(arguments: Sequence[str]) -> None:
    """ruff check"""
    install("dev")
    run(PYTHON, "-m", "ruff", "check", *CHECKED)


def task_layout(arguments: Sequence[str]) -> None:
    """ruff format --check"""
    install("dev")
    run(PYTHON, "-m", "ruff", "format", "--check", *CHECKED)


def task_types(arguments: Sequence[str]) -> None:
    """mypy, strict, over the packages and their tests"""
    install("dev")
    run(PYTHON, "-m", "mypy")


def task_imports(arguments: Sequence[str]) -> None:
    """who may import whom"""
    install("dev")
    run(PYTHON, "-m", "pytest", "-q", "tests/test_imports.py")


def task_check(arguments: Sequence[str]) -> None:
    """all that can be said without running it: lint, layout, types, imports"""
    failed = [task for task in (task_lint, task_layout, task_types, task_imports) if not _passes(task)]
    if failed:
        fail(f"failed: {', '.join(task.__doc__ or '' for task in failed)}")


def _passes(task: Callable[[Sequence[str]], None]) -> bool:
    try:
        task(())
    except SystemExit as end:
        return end.code in (0, None)
    return True


def task_format(arguments: Sequence[str]) -> None:
    """lay the code out and fix what ruff can fix"""
    install("dev")
    run(PYTHON, "-m", "ruff", "check", "--fix", *CHECKED)
    run(PYTHON, "-m", "ruff", "format", *CHECKED)


def task_wheel(arguments: Sequence[str]) -> None:
    """build the wheel into dist/"""
    ensure_venv()
    run(PYTHON, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", "dist", ".")


def task_clean(arguments: Sequence[str]) -> None:
    """delete .venv, dist and the tools' caches (not the fetched models: gramserve rm)"""
    for name in (".venv", "dist", "build", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"):
        shutil.rmtree(ROOT / name, ignore_errors=True)


def task_help(arguments: Sequence[str]) -> None:
    """say this"""
    print("usage: python3 dev.py TASK [more words]\n")
    for name, task in TASKS.items():
        print(f"  {name:<9}{(task.__doc__ or '').strip()}")


TASKS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "serve": task_serve,
    "test": task_test,
    "install": task_install,
    "check": task_check,
    "format": task_format,
    "fast": task_fast,
    "live": task_live,
    "bench": task_bench,
    "lint": task_lint,
    "layout": task_layout,
    "types": task_types,
    "imports": task_imports,
    "wheel": task_wheel,
    "clean": task_clean,
    "help": task_help,
}


def main(arguments: Sequence[str]) -> None:
    """Run the task that the first argument names."""
    if sys.version_info < OLDEST:
        fail(f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {sys.version.split()[0]}")
    name = arguments[0] if arguments else "help"
    if name in ("-h", "--help"):
        name = "help"
    if name not in TASKS:
        fail(f"no task {name!r}; there are {', '.join(TASKS)}")
    TASKS[name](arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
