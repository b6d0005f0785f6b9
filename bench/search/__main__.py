"""`scripts/bench search`: the whole table, or a quick look with fewer queries."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench import report
from bench.load import BenchError
from bench.search import choice, doubt, quality, speed, steps
from bench.search.page import Page
from bench.search.peers import EVERYBODY
from bench.search.quality import Quality
from bench.search.sets import all_sets

PACKAGES = ("toolpost", "numpy", "fastmcp", "bm25s")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    page = Page({})
    targets: list[list[str]] = []
    try:
        _tell_quality(page, targets, options.queries)
        _tell_steps(page, min(options.queries, 300))
        _tell_speed(page, targets, options.rounds)
        _tell_doubt(page, min(options.queries, 250))
        if options.weights:
            _tell_choice(page, options.queries)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    around = report.surroundings({})
    page.around = {**around, "versions": {name: version(name) for name in PACKAGES}}
    page.parts.insert(0, ("Targets", "", ["", "aim", "found", ""], targets))
    page.show()
    if options.write is not None:
        page.write(options.write)
    return 0


def _tell_quality(page: Page, targets: list[list[str]], most: int) -> None:
    per_set = {one.name: quality.of_everybody(one, most) for one in all_sets()}
    unseen = [per_set[one.name] for one in all_sets() if one.is_unseen]
    means = {name: Quality.average([found[name] for found in unseen]) for name in EVERYBODY}
    rows = []
    for label, found in [*per_set.items(), ("mean without MetaTool", means)]:
        rows += [[label, name, *(f"{value:.3f}" for value in vars(one).values())] for name, one in found.items()]
    page.add("How often the right tool is found", "", ["set", "", "recall@5", "recall@10", "MRR", "nDCG@5"], rows)
    ours = means["Toolpost"]
    targets.append(_target("mean recall@5", ">= 0.79", f"{ours.recall_5:.3f}", ours.recall_5 >= 0.79))
    targets.append(_target("mean recall@10", ">= 0.86", f"{ours.recall_10:.3f}", ours.recall_10 >= 0.86))
    for name, found in per_set.items():
        own = found.pop("Toolpost")
        best = max(found.values(), key=lambda one: one.recall_5)
        is_above = all(own.recall_5 > peer.recall_5 and own.recall_10 > peer.recall_10 for peer in found.values())
        shown = f"{own.recall_5:.3f} against {best.recall_5:.3f}"
        targets.append(_target(f"{name}: above both peers, recall@5", "above", shown, is_above))


def _tell_steps(page: Page, most: int) -> None:
    rows = []
    for count in (1, 3, 5):
        found = [steps.found_of_tasks(one, count, most) for one in all_sets() if one.is_unseen]
        means = steps.Found(
            *(sum(values) / len(found) for values in zip(*(vars(each).values() for each in found), strict=True))
        )
        rows.append([f"{count}", *(f"{each.defined:.3f} / {each.named:.3f}" for each in (*found, means))])
    heads = ["steps", *(one.name for one in all_sets() if one.is_unseen), "mean"]
    text = (
        'Queries of a set, joined by "and then" to one search. The share of the needed tools that is returned with its '
        "definition / with its definition or its name."
    )
    page.add("How much of a task of several steps one search finds", text, heads, rows)


def _tell_speed(page: Page, targets: list[list[str]], rounds: int) -> None:
    costs = [speed.cost(size, rounds=rounds) for size in speed.SIZES]
    peers = speed.peers_p50_ms(speed.SIZES[0], rounds=rounds)
    heads = [
        "tools",
        "index, CPU s",
        "one changed tool, CPU ms",
        "query p50, CPU ms",
        "p95",
        "p50 for a caller who sees half",
    ]
    rows = []
    for one in costs:
        numbers = (one.index_cpu_s, one.change_ms, one.query_p50_ms, one.query_p95_ms, one.narrowed_p50_ms)
        rows.append([f"{one.tools:,}", *(f"{number:.2f}" for number in numbers)])
    told = ", ".join(f"{name} {value:.2f} ms" for name, value in peers.items())
    page.add("What it costs", f"The peers' p50 per query at {speed.SIZES[0]:,} tools, CPU: {told}.", heads, rows)
    small, middle, large = costs
    share, cost = speed.saved_share(1000)
    p50s = (small.query_p50_ms, large.query_p50_ms)
    targets += [
        _target("p50 per query at 3,600 tools, CPU", "< 2 ms", f"{p50s[0]:.2f} ms", p50s[0] < 2),
        _target("p50 per query at 100,000 tools, CPU", "< 20 ms", f"{p50s[1]:.2f} ms", p50s[1] < 20),
        _target("10,000 tools indexed, CPU", "< 6 s", f"{middle.index_cpu_s:.2f} s", middle.index_cpu_s < 6),
        _target("one changed tool of 10,000, CPU", "< 20 ms", f"{middle.change_ms:.2f} ms", middle.change_ms < 20),
        _target("tokens saved at 1,000 tools", ">= 97 %", f"{share:.1%} (a search costs {cost:,.0f})", share >= 0.97),
    ]


def _tell_doubt(page: Page, most: int) -> None:
    rows = [
        [one.about, f"{one.auc:.2f}", f"{one.doubted_bad:.0%}", f"{one.doubted_good:.0%}", f"{one.precision:.0%}"]
        for one in doubt.doubts(most)
    ]
    heads = ["", "AUC", "called weak, rightly", "called weak, wrongly", "precision"]
    text = (
        "Each query is asked with the right tools there, and with them taken away (their neighbours stay). AUC is how often "
        "the first is the surer of two; 0.5 is chance. The signal is modest: it is told, and nothing is left out for it."
    )
    page.add("How well a weak match is told from a good one", text, heads, rows)


def _tell_choice(page: Page, most: int) -> None:
    rows = []
    for name, found in choice.chosen(most):
        mean = Quality.average([one for one, of in zip(found, all_sets(), strict=True) if of.is_unseen])
        rows.append([name, *(f"{one.recall_5:.3f} / {one.recall_10:.3f}" for one in (*found, mean))])
    text = "recall@5 / recall@10 on the half for choosing, one weight changed at a time. The mean is without MetaTool."
    page.add("Other weights", text, ["", *(one.name for one in all_sets()), "mean"], rows)


def _target(what: str, aim: str, found: str, is_reached: bool) -> list[str]:
    return [what, aim, found, "reached" if is_reached else "missed"]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench search", description="Measure how tools are found.")
    parser.add_argument("--queries", type=int, default=2000, help="at most so many of each set's half (2000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often times are taken; the quietest counts (3)")
    parser.add_argument("--weights", action="store_true", help="compare other weights too, on the half for choosing")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the documentation's page too")
    return parser.parse_args(arguments)


sys.exit(main())
