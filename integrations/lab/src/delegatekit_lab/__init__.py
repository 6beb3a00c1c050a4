"""Devices on other machines: a server for a lab's board, and the runtime that speaks to it."""

from __future__ import annotations
