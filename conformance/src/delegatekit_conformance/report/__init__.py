"""A run on the terminal, as JSON, JUnit XML, Markdown, CSV and as a page; and the changes between two runs."""

from .console import print_console
from .difference import LATENCY_THRESHOLD, Change, Difference, diff
from .document import FORMAT, as_json, from_json, merge, read_json, schema, write_json
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
    "diff",
    "from_json",
    "html",
    "junit",
    "markdown",
    "merge",
    "print_console",
    "read_json",
    "schema",
    "support_csv",
    "write_csv",
    "write_html",
    "write_json",
    "write_junit",
    "write_markdown",
]
