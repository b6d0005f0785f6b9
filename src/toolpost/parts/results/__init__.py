"""Large results: an answer has as much of one as its caller has room for, and the rest is kept for that caller.

scan      walks through JSON as bytes, without decoding it
cut       JSON and text made smaller, at places where the rest stays valid; `content` does it with content blocks
limiter   which results are too large for whom, and the answer in place of one
records   stored results: tables and transactions
kept      keeps results in chunks, and reads parts of them
reader    pages, searches and selections of a kept result
plugin    `results__read`, and the resources behind the links
part      what the gateway is given; `settings` and `doctor` are what it brings

A result is kept as the audit has digested it, byte for byte.
"""

from toolpost.parts import Part

PART = Part(
    name="results",
    summary="Large results, truncated, and the rest of them.",
    opens="toolpost.parts.results.part:open_results",
    settings=("toolpost.parts.results.settings:RESULTS",),
    migrations="toolpost.parts.results.migrations",
    doctor="toolpost.parts.results.doctor:ResultsDoctor",
    plugins=("results",),
    works_without_plugin="toolpost.parts.results.part:works_without_plugin",
)
