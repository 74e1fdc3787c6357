"""What compiling takes of memory: a process that reads a corpus of schemas line by line, compiles each and does nothing else.

    python -m tests.bench.compile_memory CORPUS.jsonl.gz STEP

prints MiB as JSON: `start` before the first schema, `peak` the most so far, `end` what is still held after the last one, and
`dearest`, the line whose compile made the peak. Without /proc (not Linux) the peak is that of getrusage, and there is no `end`.
"""

from __future__ import annotations

import gc
import gzip
import json
import sys
from contextlib import suppress
from pathlib import Path

from converters import ConversionError, JsonSchema, compile_constraint

_STATUS = Path("/proc/self/status")


def memory_mib(name: str) -> float:
    """VmHWM (the most since this program began; getrusage would count the parent's too) or VmRSS; NaN where it isn't told."""
    if not _STATUS.exists():
        import resource

        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if name == "VmHWM" else float("nan")
        return kilobytes / 1024
    lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


def main(corpus: Path, step: int) -> None:
    """Compile every `step`-th schema of `corpus`."""
    _compile({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"format": "date"}}})
    start = peak = memory_mib("VmHWM")
    dearest = n_schemas = 0
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        for i, line in enumerate(lines):
            if i % step == 0:
                _compile(json.loads(line)["schema"])
                n_schemas += 1
                most = memory_mib("VmHWM")
                if most > peak:
                    peak, dearest = most, i
    gc.collect()
    print(json.dumps({"n": n_schemas, "start": start, "peak": peak, "end": memory_mib("VmRSS"), "dearest": dearest}))


def _compile(schema: object) -> None:
    with suppress(ConversionError):
        compile_constraint(JsonSchema(schema))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
