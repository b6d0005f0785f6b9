"""The process that reads YAML: `python -m toolpost.parts.openapi.yaml_process PLACE`. `document` is the other end.

It parses its stdin and writes a `YamlAnswer` to stdout.
"""

import sys

import msgspec

from toolpost.parts.openapi.document import BadDocument, YamlAnswer, parse_yaml
from toolpost.processes import limit_resources


def main() -> None:
    limit_resources()
    try:
        document = msgspec.Raw(msgspec.json.encode(parse_yaml(sys.stdin.buffer.read(), sys.argv[1])))
    except BadDocument as error:
        answer = YamlAnswer(problem=error.message, hint=error.hint)
    else:
        answer = YamlAnswer(document=document)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
