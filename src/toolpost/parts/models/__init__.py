"""Models, agents and interchangeable servers: score them, ask the best one, and go on when it fails.

part       the router as a part of a gateway; `settings` and `doctor` are what it brings
plugin     its tools, `router_score`, `router_call`, `router_fallback` and `router_stats`
router     asks candidates in the order of their scores, within a deadline
score      the scores: a pure function of a request and of what is known about candidates
breaker    which candidates are left alone for a while, after failures
endpoint   OpenAI-compatible endpoints: chat completions and responses, whole and as streams
agents     agents of conversations as candidates
stats      calls, failures, tokens, cost and latencies, kept in the store
groups     tools that several servers have in common, as one tool with failover
api        circuits and statistics over HTTP; `commands` shows them on a terminal
sampling   answers to sampling requests of servers whose client has no model
"""

from toolpost.parts import Command, Part

PART = Part(
    name="models",
    summary="Models, agents and interchangeable servers, of which the best is asked.",
    opens="toolpost.parts.models.part:open_models",
    settings=(
        "toolpost.parts.models.settings:MODELS",
        "toolpost.parts.models.settings:ROUTER",
        "toolpost.parts.models.settings:GROUPS",
    ),
    migrations="toolpost.parts.models.migrations",
    doctor="toolpost.parts.models.doctor:ModelsDoctor",
    plugins=("models",),
    commands={
        "models": Command(
            "toolpost.parts.models.commands:models",
            "Show the models and groups of the running gateway, their statistics, or reset a circuit.",
        )
    },
    works_without_plugin="toolpost.parts.models.part:works_without_plugin",
    find_idle="toolpost.parts.models.part:find_idle",
)
