"""`scripts/bench`: everything, or the parts that are named."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import (
    agents,
    approvals,
    bus,
    compat,
    help_command,
    http_calls,
    models,
    proxy,
    register,
    report,
    stdio_calls,
    store,
    telemetry,
    trail,
    workspace,
)
from bench.figures import Figures, Pace, Part, say
from bench.load import BenchError, compiled

PARTS: tuple[Part, ...] = (
    help_command.PART,
    stdio_calls.STARTUP,
    register.PART,
    compat.PART,
    http_calls.PART,
    stdio_calls.PART,
    proxy.PART,
    telemetry.PART,
    store.PART,
    trail.PART,
    approvals.PART,
    bus.PART,
    workspace.PART,
    models.PART,
    agents.PART,
)
"""In this order they are measured, and stand on the page."""

ALL = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    pace = Pace(rounds=options.rounds, seconds=options.seconds)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As with Ctrl-C, so that the servers are ended on the way out.
        signal.signal(number, signal.default_int_handler)
    try:
        compiled()
        run = [(part, _measured(part, pace)) for part in PARTS if {part.name, ALL} & set(options.parts)]
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; every process that was started has been ended", file=sys.stderr)
        return 130
    _tell(run, pace, options)
    return 0


def _measured(part: Part, pace: Pace) -> Figures:
    say(f"part `{part.name}`: {part.title}")
    figures = Figures()
    part.measure(figures, pace)
    return figures


def _tell(run: list[tuple[Part, Figures]], pace: Pace, options: argparse.Namespace) -> None:
    around = report.surroundings(vars(pace))
    if options.write is not None:
        report.write_page(run, around, options.write, order=[part.name for part in PARTS])
    if options.json:
        parts = {part.name: part.as_object(figures) for part, figures in run}
        print(json.dumps({**around, "parts": parts}, ensure_ascii=False, indent=1))
    else:
        report.print_tables(run, around)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure Toolpost beside the official SDK and FastMCP, in turns, within one run.",
        epilog="parts:\n" + "\n".join(f"  {part.name:10} {part.title}" for part in PARTS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*(part.name for part in PARTS), ALL]
    parser.add_argument("parts", nargs="*", choices=names, default=[ALL], metavar="PART", help="what to measure (all)")
    parser.add_argument("--rounds", type=_positive_int, default=5, help="how often everybody is measured (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long one load lasts (2)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the parts into the documentation's page; others stay there"
    )
    return parser.parse_args(arguments)


def _positive_int(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
