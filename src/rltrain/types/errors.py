"""How a run fails once it has started; what a user can mend before that is `config.errors.UserError`."""

from __future__ import annotations


class RunError(RuntimeError):
    """The run can't go on; the message says what happened and where to look. Exit code 1."""


class SaveFailed(RunError):
    """A step couldn't be written; those that were saved before are whole."""


class WorkerDied(RunError):
    """A worker process ended by itself or was killed."""


class DeadlineExceeded(RunError):
    """Something was awaited for longer than its limit."""
