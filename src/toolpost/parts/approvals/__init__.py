"""Approvals by quorum: calls that run once, after others have approved them; and a verifiable random function.

part      approvals as a part of a gateway; `settings` has its sections
rules     which rule a call falls under
guard     holds calls to the rules: finds or opens a round, waits, uses the approval
elicitation  asks the client of a call for a vote, where a rule allows it
rounds    a round as a value: votes, levels, what may still happen; no I/O
records   every transaction on rounds and votes
sample    contents of calls that are kept for review, selected verifiably at random
draw      voters drawn from a pool, verifiably at random
subject   what is voted on, and the bytes that are signed
review    what voters see of the arguments of a call
service   what guard, tools, commands and the HTTP API share
results   rounds and votes as they are shown
doctor    what `toolpost doctor` says of the rules
plugin    `consensus_*` and `vrf_*`; `api` and `commands` are the other ways to vote
voter     who votes at the command line, by passphrase or token
peers     gossip: rounds, votes and audit heads exchanged with other gateways
vrf       ECVRF-EDWARDS25519-SHA512-TAI
"""

from toolpost.parts import Command, Part

PART = Part(
    name="approvals",
    summary="Calls that run only once others have approved them, and votes that anyone can verify.",
    opens="toolpost.parts.approvals.part:open_approvals",
    settings=(
        "toolpost.parts.approvals.settings:APPROVALS",
        "toolpost.parts.approvals.settings:PEERS",
    ),
    migrations="toolpost.parts.approvals.migrations",
    doctor="toolpost.parts.approvals.doctor:ApprovalsDoctor",
    plugins=("approvals",),
    commands={
        "approvals": Command(
            "toolpost.parts.approvals.commands:approvals", "See which calls wait for approval, and vote on them."
        )
    },
    is_required="toolpost.parts.approvals.part:is_required",
    works_without_plugin="toolpost.parts.approvals.part:works_without_plugin",
)
