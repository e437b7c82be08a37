"""`python -m switchyard` is the command `switchyard`: run, bench, doctor."""

from __future__ import annotations

import os
import sys


def main() -> None:
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "switchyard")
    if not os.path.exists(tool):
        sys.exit("switchyard: this package was built without the command (SWITCHYARD_TOOLS)")
    os.execv(tool, [tool, *sys.argv[1:]])


if __name__ == "__main__":
    main()
