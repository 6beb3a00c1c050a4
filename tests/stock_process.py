"""A process that runs scripts one after the other, so that stock ExecuTorch is imported once for all of them.

The fixture `stock_process` starts it. Each line on stdin is a script as JSON: its source, its name, its arguments. For
each, a line on stdout says what it printed, or its traceback.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback
from contextlib import redirect_stdout


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print there without Python
    logging.disable(logging.WARNING)
    for line in sys.stdin:
        source, name, arguments = json.loads(line)
        sys.argv = [name, *arguments]
        printed = io.StringIO()
        error = ""
        try:
            with redirect_stdout(printed):
                exec(compile(source, name, "exec"), {"__name__": "__main__", "__file__": name})
        except BaseException:
            error = traceback.format_exc()
        print(json.dumps([printed.getvalue(), error]), file=answers, flush=True)


if __name__ == "__main__":
    main()
