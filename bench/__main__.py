"""`scripts/bench`: everything, or the parts named with --only."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import help_command, http_calls, register, report, stdio_calls
from bench.figures import Figures
from bench.load import BenchError, compiled

PARTS = ("help", "startup", "register", "http", "stdio")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    figures = Figures()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As with Ctrl-C, so that the servers are ended on the way out.
        signal.signal(number, signal.default_int_handler)
    try:
        compiled()
        for part in options.only:
            _measurers(figures, options.rounds, options.seconds)[part]()
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; every process that was started has been ended", file=sys.stderr)
        return 130
    _tell(figures, options)
    return 0


def _measurers(figures: Figures, rounds: int, seconds: float) -> dict[str, Callable[[], None]]:
    return {
        "help": lambda: help_command.measure(figures, rounds=rounds),
        "startup": lambda: stdio_calls.measure_startup(figures, rounds=rounds),
        "register": lambda: register.measure(figures, rounds=rounds),
        "http": lambda: http_calls.measure(figures, rounds=rounds, seconds=seconds),
        "stdio": lambda: stdio_calls.measure_calls(figures, rounds=rounds, seconds=seconds),
    }


def _tell(figures: Figures, options: argparse.Namespace) -> None:
    around = report.surroundings({"rounds": options.rounds, "seconds": options.seconds})
    if options.write is not None:
        report.write_page(figures, around, options.write)
    if options.json:
        print(json.dumps({**around, **figures.as_object()}, ensure_ascii=False, indent=1))
    else:
        report.print_tables(figures, around)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measure Toolpost beside the official SDK's servers and FastMCP."
    )
    parser.add_argument("--rounds", type=_positive_int, default=5, help="how often everybody is measured (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long one load lasts (2)")
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the documentation's page too")
    return parser.parse_args(arguments)


def _parts(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if unknown := set(wanted).difference(PARTS):
        raise argparse.ArgumentTypeError(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return wanted


def _positive_int(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")
    return int(text)


sys.exit(main())
