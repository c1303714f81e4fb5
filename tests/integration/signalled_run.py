"""`python signalled_run.py STAGE SIGNAL GO ARGUMENTS...`: rltrain, which signals itself within one call of STAGE.

STAGE is an async method of the driver, `module:Class.method`; it is the first call that finds the file GO.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from rltrain import launch
from rltrain.cli.app import main

stage, number, go = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
run = launch._run


async def patched_run(*args: Any) -> None:
    """Patches here, since importing Ray before its environment is set would start another Ray."""
    module, _, path = stage.partition(":")
    owner_name, name = path.split(".")
    owner = getattr(importlib.import_module(module), owner_name)
    method = getattr(owner, name)

    async def signalled(*args: Any, **options: Any) -> Any:
        if go.exists():
            go.unlink()
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        return await method(*args, **options)

    setattr(owner, name, signalled)
    await run(*args)


launch._run = patched_run
sys.argv[1:] = sys.argv[4:]
main()
