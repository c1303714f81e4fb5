"""How a command ends: what went wrong on stderr, and the exit code that scripts rely on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


@contextmanager
def exit_codes() -> Generator[None]:
    """Turns the errors that a user can act on into lines on stderr and an exit code; bugs keep their traceback."""
    from rltrain.config.errors import UserError

    try:
        yield
    except UserError as error:
        for problem in error.problems:
            _say(str(problem))
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        _say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except RuntimeError as error:
        from rltrain.types.errors import RunError

        if not isinstance(error, RunError):
            raise
        _say(f"the run failed: {error}")
        raise typer.Exit(FAILED) from None


def _say(text: str) -> None:
    import os

    from rltrain.config.redact import scrubbed, secret_values

    line = scrubbed(" ".join(text.splitlines()), secrets=secret_values(os.environ))
    # Values and rows come from anywhere; what isn't printable could steer the terminal.
    typer.echo("".join(char if char.isprintable() else ascii(char)[1:-1] for char in line), err=True)
