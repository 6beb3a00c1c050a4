"""`python -m delegatekit`: the command line."""

from __future__ import annotations

from .cli.command_line import main

main()
