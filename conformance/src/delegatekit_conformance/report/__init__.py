"""A run on the terminal, as JSON, JUnit XML, Markdown, CSV and as a page; and the changes between two runs."""

from .console import print_console
from .difference import LATENCY_THRESHOLD, Change, Difference, diff
from .document import (
    FORMAT,
    as_json,
    canonical,
    from_json,
    merge,
    miscounted,
    read_bytes,
    read_json,
    run_of,
    schema,
    values_of,
    write_json,
    write_record,
)
from .junit import junit, write_junit
from .markdown import markdown, write_markdown
from .page import html, write_html
from .support import support_csv, write_csv

__all__ = [
    "FORMAT",
    "LATENCY_THRESHOLD",
    "Change",
    "Difference",
    "as_json",
    "canonical",
    "diff",
    "from_json",
    "html",
    "junit",
    "markdown",
    "merge",
    "miscounted",
    "print_console",
    "read_bytes",
    "read_json",
    "run_of",
    "schema",
    "support_csv",
    "values_of",
    "write_csv",
    "write_html",
    "write_json",
    "write_junit",
    "write_markdown",
    "write_record",
]
