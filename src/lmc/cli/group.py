"""A group of commands that says what is wrong in one line."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from typing import Any

import click

from lmc.errors import ArgumentError, DatasetError, GraphError, LMCError
from lmc.files import one_line, place_in_own_code, raised_text


class OneLineGroup(click.Group):
    """A group of commands whose mistakes are one line: exit code 2 for wrong usage, 1 for a failed run."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; say what is wrong, if anything is, without a traceback."""
        warnings.showwarning = _warn  # type: ignore[assignment]
        kwargs["standalone_mode"] = False
        try:
            code = _flushed(super().main(*args, **kwargs))
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except (ArgumentError, DatasetError, GraphError) as error:
            _fail(str(error), 2)
        except LMCError as error:
            _fail(str(error), 1)
        except OSError as error:
            _fail(f"{error.filename or 'a file'}: {one_line(error)}", 1)
        except MemoryError as error:
            _fail(f"out of memory: {one_line(error)}", 1)
        except Exception as error:
            if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
                _fail("out of memory: more parts, fewer parts a batch or a smaller width need less", 1)
            if place_in_own_code(error) is None:  # a mistake of ours: all of the traceback is of use
                raise
            _fail(f"code of yours raised {raised_text(error)}", 1)
        except (click.Abort, KeyboardInterrupt):
            _fail("interrupted", 130)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for an unknown one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise click.UsageError(f"{args[0]!r} is not a command: must be one of {', '.join(known)}{hint}")
        return super().resolve_command(ctx, args)


def _flushed(code: Any) -> Any:
    """The exit code, once all that was printed is on its way.

    Where nobody reads it any more, as after `lmc inspect cora | head -1`, it is 1, as click and rich have it.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return 1
    return code


def _fail(message: str, code: int) -> None:
    print("lmc: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def _warn(message: Warning | str, *_: Any) -> None:
    print("lmc: warning: " + " ".join(str(message).split()), file=sys.stderr)
