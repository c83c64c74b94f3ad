"""Run the `forebay` commands of a page one after the other, given as JSON; print their ends."""

import json
import sys

from forebay.cli.main import app

if __name__ == "__main__":
    codes: list[str | int] = []
    for words in json.loads(sys.argv[1]):
        print("$ forebay", *words, flush=True)  # noqa: T201 # what a program says
        try:
            app(words)
            codes.append(0)
        except SystemExit as end:
            codes.append(end.code or 0)
    print(json.dumps(codes), flush=True)  # noqa: T201
