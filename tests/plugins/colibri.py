"""The eight tools whose output schemas broke every client, with their real shapes, and one that breaks its own."""

from typing import Any

from toolpost import Plugin

plugin = Plugin("colibri", version="0.93.0")


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}

SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "router_score": (
        _object(["prompt"], prompt=TEXT),
        _object(
            ["scores", "winner", "rule_version_hash"],
            scores={"type": "object", "additionalProperties": {"type": "number"}},
            winner=TEXT,
            rule_version_hash=TEXT,
        ),
        {"scores": {"opus": 0.9, "haiku": 0.4}, "winner": "opus", "rule_version_hash": "abc"},
    ),
    "router_fallback": (
        _object([]),
        _object(["circuitState"], circuitState={"enum": ["closed", "open", "half-open"]}),
        {"circuitState": "closed"},
    ),
    "router_stats": (
        _object([]),
        _object(["models"], models={"type": "object", "additionalProperties": {"$ref": "#/$defs/model"}})
        | {"$defs": {"model": _object(["calls"], calls=COUNT)}},
        {"models": {"opus": {"calls": 3}}},
    ),
    "consensus_propose": (
        _object(["value"], value=TEXT),
        _object(["round_id", "status"], round_id=TEXT, status={"enum": ["open", "closed"]}),
        {"round_id": "r1", "status": "open"},
    ),
    "consensus_vote": (
        _object(["round_id"], round_id=TEXT),
        _object(["vote_signed", "sig_b64"], vote_signed={"type": "boolean"}, sig_b64=TEXT),
        {"vote_signed": True, "sig_b64": "c2ln"},
    ),
    "consensus_finality": (
        _object(["round_id"], round_id=TEXT),
        _object(
            ["round_id", "level"],
            round_id=TEXT,
            level={"enum": ["none", "soft", "hard"]},
            evidence={"type": "array", "items": TEXT},
        ),
        {"round_id": "r1", "level": "soft"},
    ),
    "consensus_gossip": (
        _object(["peer_id"], peer_id=TEXT),
        _object(["events_sent", "events_received"], events_sent=COUNT, events_received=COUNT),
        {"events_sent": 1, "events_received": 0},
    ),
    "vrf_eval": (
        _object(["seed_hex"], seed_hex={"type": "string", "pattern": "^[0-9a-f]+$"}),
        _object(["output_hex", "proof_hex"], output_hex=TEXT, proof_hex=TEXT),
        {"output_hex": "aa", "proof_hex": "bb"},
    ),
}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "router_score": {"prompt": "haiku"},
    "consensus_propose": {"value": "x"},
    "consensus_vote": {"round_id": "r1"},
    "consensus_finality": {"round_id": "r1"},
    "consensus_gossip": {"peer_id": "phase0-test"},
    "vrf_eval": {"seed_hex": "00ff"},
}


def _declare(name: str, takes: dict[str, Any], gives: dict[str, Any], result: dict[str, Any]) -> None:
    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        return result

    plugin.tool(name=name, description=f"{name} of Colibri", input_schema=takes, output_schema=gives)(handler)


for _name, (_takes, _gives, _result) in SHAPES.items():
    _declare(_name, _takes, _gives, _result)


@plugin.tool(
    description="Returns another shape than it promised",
    input_schema=_object([]),
    output_schema=_object(["models"], models={"type": "object"}),
)
async def wrong_shape(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"modles": [1, 2, 3]}
