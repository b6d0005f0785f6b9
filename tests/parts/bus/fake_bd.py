"""A `bd` for the tests: takes what the real one takes, keeps its beads in a file, and fails when it is told to."""

import json
import sys
from pathlib import Path


def main() -> int:
    folder = Path(".beads")
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if (folder / "broken").exists():
        print("Error: database is locked", file=sys.stderr)
        return 1
    options, _, _given = " ".join(sys.argv[1:]).partition(" -- ")
    given_list = sys.argv[sys.argv.index("--") + 1 :]
    beads = json.loads((folder / "beads.json").read_text())
    if given_list[0] not in beads:
        print(f"Error: issue {given_list[0]} not found", file=sys.stderr)
        return 1
    bead = beads[given_list[0]]
    if options.startswith("update"):
        bead["status"] = sys.argv[sys.argv.index("--status") + 1]
    elif options.startswith("comments add"):
        bead["comments"].append(given_list[1])
    (folder / "beads.json").write_text(json.dumps(beads))
    print(json.dumps({"schema_version": 1, "data": [bead]}))
    return 0


sys.exit(main())
