"""The decision trail: plans, decisions and calls of agents, in chained, sealed and provable sessions.

records       sessions and records: what is hashed, and the transactions that keep it
service       Trail: sessions are started, added to, verified, sealed and proven
merkle        a growing Merkle tree (RFC 6962), and what its proofs consist of
verify_trail  verifies exports; a single file without Toolpost, which is exported with them
plugin        the tools
api           the same over HTTP, to be read only
turns         turns of conversations that must end with a decision
export        sessions and proofs as lines of JSON
calls         the middleware that records calls
commands      `toolpost trail`; `doctor` is what `toolpost doctor` says
part          what the gateway is given; `settings` has its section
"""

from toolpost.parts import Command, Part

PART = Part(
    name="trail",
    summary="Plans, decisions and calls of agents, provable.",
    opens="toolpost.parts.trail.part:open_trail",
    settings=("toolpost.parts.trail.settings:TRAIL",),
    migrations="toolpost.parts.trail.migrations",
    doctor="toolpost.parts.trail.doctor:TrailDoctor",
    plugins=("trail",),
    commands={
        "trail": Command(
            "toolpost.parts.trail.commands:trail", "Show, verify and export the decisions and calls of agents."
        )
    },
    is_required="toolpost.parts.trail.part:is_required",
    works_without_plugin="toolpost.parts.trail.part:works_without_plugin",
    find_idle="toolpost.parts.trail.part:find_idle",
)
