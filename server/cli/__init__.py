"""The command `gramserve`. One file a command; what they share is in `options` and `session`.

Nothing is imported before a command needs it: `gramserve --help` loads neither HTTP, nor llama.cpp, nor the compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from server.cli.error import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 failed, 2 misused, 130 interrupted.

    Errors are one line on stderr, never a traceback (but GRAMSERVE_LOG_LEVEL=debug shows it).
    """
    from server.cli.parser import parse_arguments

    try:
        parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        status: int = parsed.run(parsed)
    except UsageError as error:
        return _fail(error, 2)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        return 1
    except Exception as error:
        if not _is_expected(error):
            return _fail_unexpectedly(error)
        return _fail(error, 1)
    return status


def _is_expected(error: Exception) -> bool:
    """Errors whose text is made for users."""
    from server.errors import ServerError
    from server.models.errors import ModelError

    if isinstance(error, (ServerError, ModelError, OSError)):
        return True
    from converters.errors import ConversionError

    return isinstance(error, ConversionError)


def _fail(error: Exception, status: int) -> int:
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"gramserve: {text}", file=sys.stderr)
    return status


def _fail_unexpectedly(error: Exception) -> int:
    import os
    import traceback

    if os.environ.get("GRAMSERVE_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exception(error)
    return _fail(RuntimeError(f"internal error, please report it: {type(error).__name__}: {error}"), 1)
