"""`python -m delegatekit.cli`."""

from __future__ import annotations

from .command_line import main

main()
