"""The compile process: jobs on stdin, replies on stdout, words for people on stderr.

A thread reads, so that the process ends at once when its parent is gone, in the middle of a compile too.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import traceback
from queue import SimpleQueue

from typing_extensions import assert_never

import converters.choice
import converters.jsonschema
import converters.lark
import converters.regex  # noqa: F401  (loaded now, so that the first request's deadline doesn't pay for it)
from converters.compile import Compiled, compile_constraint
from converters.errors import ConversionError, LimitExceeded
from converters.grammar.match import Matcher
from server.compile.messages import CompileJob, Crashed, Done, ExamplesJob, Job, Ready, Refused, Reply
from server.engine.channel import ChannelClosed, Receiver, Sender
from server.engine.worker import take_over_pipes

MEMORY_BYTES = 2 * 1024**3
MAX_EXAMPLE_CHARS = 200
MAX_SHORTEST_CHARS = 100_000
_NICENESS = 5  # decoding beside it goes first


def main() -> None:
    """Serve jobs until the parent closes the pipe."""
    incoming, outgoing = take_over_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _be_modest()
    jobs: SimpleQueue[Job] = SimpleQueue()
    threading.Thread(target=_read, args=(Receiver[Job](incoming), jobs), daemon=True).start()
    sender = Sender[Reply](outgoing)
    sender.send(Ready())
    while True:
        sender.send(_answer(jobs.get()))


def _read(receiver: Receiver[Job], jobs: SimpleQueue[Job]) -> None:
    try:
        while True:
            jobs.put(receiver.receive())
    except ChannelClosed:
        os._exit(0)


def _be_modest() -> None:
    """Less priority than decoding, and a bound on memory, where the system has such things."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(ValueError, OSError):
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))


def _answer(job: Job) -> Reply:
    try:
        return Done(_do(job))
    except ConversionError as error:
        return Refused(error)
    except RecursionError:
        return Refused(LimitExceeded("the constraint is nested too deeply", limit="depth", value=sys.getrecursionlimit()))
    except MemoryError:
        return Refused(LimitExceeded("compiling takes too much memory", limit="memory_bytes", value=MEMORY_BYTES))
    except Exception:
        return Crashed(traceback.format_exc())


def _do(job: Job) -> Compiled | tuple[str, ...]:
    match job:
        case CompileJob(constraint=constraint, options=options):
            return compile_constraint(constraint, options)
        case ExamplesJob(tables=tables, n_random=n_random):
            return _examples(tables, n_random)
        case _:
            assert_never(job)


def _examples(tables: bytes, n_random: int) -> tuple[str, ...]:
    matcher = Matcher.from_tables(tables)
    n_least = matcher.least_length(matcher.start)
    if n_least > MAX_SHORTEST_CHARS:
        raise LimitExceeded(f"the shortest output has {n_least} characters", limit="example_chars", value=MAX_SHORTEST_CHARS)
    rng = random.Random(0)
    shortest = matcher.shortest_completion(matcher.start)
    others = {matcher.random_sentence(rng, MAX_EXAMPLE_CHARS): None for _ in range(n_random)}
    return (shortest, *others)
