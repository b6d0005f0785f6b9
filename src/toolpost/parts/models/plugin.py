"""`models__router_score` and its siblings: which model suits a request, and its answer, as tools."""

from typing import Any, Final

from toolpost import Context, ErrorCode, Forbidden, Plugin, __version__, tool
from toolpost.base import JsonObject
from toolpost.parts.models.breaker import Breaker
from toolpost.parts.models.endpoint import ModelPrompt
from toolpost.parts.models.router import Router
from toolpost.parts.models.score import FACTORS, ScoreRequest
from toolpost.parts.models.settings import CALL_TIMEOUT_S
from toolpost.parts.models.stats import Totals

PROMPT_LIMIT: Final = 4_000_000
MARGIN_S: Final = 0.5
"""How much sooner than the tool's own time limit the router gives up: its error says what was tried."""

_SHARE: Final[JsonObject] = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT: Final[JsonObject] = {"type": "integer", "minimum": 0}
_TEXT: Final[JsonObject] = {"type": "string", "maxLength": 200}
_READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}

_PROMPT: Final[JsonObject] = {"type": "string", "maxLength": PROMPT_LIMIT, "description": "what the model is asked"}


def _object(properties: JsonObject, *required: str, description: str | None = None) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema | ({"description": description} if description else {})


def _by_model(values: JsonObject, description: str) -> JsonObject:
    return {"type": "object", "additionalProperties": values, "description": description}


_CONTEXT: Final = _object(
    {
        "task": _object(
            {
                "domain": _TEXT | {"description": "its field, such as `law`"},
                "tokens": _COUNT | {"description": "size of the input; estimated from the prompt if left out"},
                "deadline_ms": {"type": "integer", "minimum": 1, "description": "how soon the answer is needed"},
                "skill": {"type": "array", "items": _TEXT, "maxItems": 32, "description": "skills that it needs"},
            },
            description="what the work is like",
        ),
        "operatorPreference": _by_model(_SHARE, "how much each model is preferred, from 0 to 1"),
    },
    description="what else is known of the request",
)

_SCORED: Final = _object(
    {
        "scores": _by_model(_SHARE, "the score of each model"),
        "winner": {"type": ["string", "null"], "description": "the model that `router_call` would ask first, if any"},
        "rule_version_hash": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "SHA-256 of the weights, as canonical JSON (RFC 8785)",
        },
        "factors": _by_model(_object(dict.fromkeys(FACTORS, _SHARE), *FACTORS), "what each score is made of"),
    },
    "scores",
    "winner",
    "rule_version_hash",
    "factors",
)

_CIRCUIT: Final = _object(
    {
        "state": {"type": "string", "enum": ["closed", "open", "half-open"]},
        "failures": _COUNT | {"description": "in a row"},
        "retry_after_ms": _COUNT | {"description": "until an attempt is made again; 0 unless it is open"},
    },
    "state",
    "failures",
    "retry_after_ms",
)

_PERCENTILE: Final[JsonObject] = {"type": ["number", "null"], "minimum": 0}
_MODEL_STATS: Final = _object(
    {
        "calls": _COUNT | {"description": "attempts, answered or not"},
        "successes": _COUNT,
        "failures": _COUNT,
        "input_tokens": _COUNT,
        "output_tokens": _COUNT,
        "cost": {"type": "number", "minimum": 0, "description": "by the configured prices"},
        "latency_ms": _object(
            dict.fromkeys(("p50", "p95", "p99"), _PERCENTILE), "p50", "p95", "p99", description="of answered attempts"
        ),
    },
    *("calls", "successes", "failures", "input_tokens", "output_tokens", "cost", "latency_ms"),
)


def models_plugin(router: Router) -> Plugin:
    """Make the plugin that runs the tools on a router."""
    plugin = Plugin(
        "models",
        version=__version__,
        description="Choose between language models by score, ask the best one, and fall back to others.",
    )

    @tool(
        name="router_score",
        title="Score models",
        description="Score every model for a prompt, from 0 to 1: domain and skill fit, room in the context window, cost,"
        " latency, reliability and preference. Asks no model.",
        input_schema=_object({"prompt": _PROMPT, "context": _CONTEXT}, "prompt"),
        output_schema=_SCORED,
        annotations=_READ_ONLY,
        errors=[ErrorCode.NOT_FOUND],
    )
    async def router_score(arguments: JsonObject) -> JsonObject:
        scores = router.score(_read_request(arguments))
        return {
            "scores": {one.name: one.total for one in scores},
            "winner": router.winner(scores),
            "rule_version_hash": router.scorer.rules.digest,
            "factors": {one.name: dict(one.factors) for one in scores},
        }

    @tool(
        name="router_call",
        title="Ask the best model",
        description="Send a prompt to the model with the best score; if it fails, to the next best. Returns the answer as"
        " `content`, with the model that gave it, its tokens and its cost.",
        input_schema=_object(
            {
                "prompt": _PROMPT,
                "context": _CONTEXT,
                "system": {"type": "string", "maxLength": PROMPT_LIMIT, "description": "instructions for the model"},
                "models": {
                    "type": "array",
                    "items": _TEXT,
                    "minItems": 1,
                    "maxItems": 100,
                    "description": "ask only these; all if left out",
                },
                "max_tokens": {"type": "integer", "minimum": 1, "description": "the longest answer"},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            },
            "prompt",
        ),
        annotations={"readOnlyHint": False, "openWorldHint": True},
        errors=[
            ErrorCode.NOT_FOUND,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.CAPABILITY_MISSING,
            ErrorCode.UPSTREAM_UNAVAILABLE,
            ErrorCode.TOOL_TIMEOUT,
            ErrorCode.HANDLER_ERROR,
        ],
        timeout_s=CALL_TIMEOUT_S,
    )
    async def router_call(arguments: JsonObject, context: Context) -> JsonObject:
        request = _read_request(arguments)
        limit_s = CALL_TIMEOUT_S - MARGIN_S
        prompt = ModelPrompt.of_text(
            arguments["prompt"],
            system=arguments.get("system"),
            max_tokens=arguments.get("max_tokens"),
            temperature=arguments.get("temperature"),
        )
        routed = await router.call(
            prompt,
            request,
            caller=context.caller,
            timeout_s=min(limit_s, request.deadline_s or limit_s),
            only=arguments.get("models", ()),
            # Streamed only for a client that sees it: as a whole, an answer always says how many tokens it took.
            on_text=(lambda text: context.progress(message=text, phase="answer")) if context.wants_progress else None,
        )
        return {
            "model": routed.model,
            "content": routed.completion.text,
            "finish": routed.completion.finish,
            "input_tokens": routed.input_tokens,
            "output_tokens": routed.output_tokens,
            "cost": routed.cost,
            "latency_ms": round(routed.seconds * 1000, 1),
            "failed": [one.as_object() for one in routed.failed],
        }

    @tool(
        name="router_fallback",
        schema_version=3,
        title="Circuits of models",
        description="Show which models are left alone after failures (an open circuit) and for how long; `reset` closes the"
        " circuit of one model, or of all, for administrators.",
        input_schema=_object(
            {
                "reset": {
                    # Not a list of types, which several models refuse.
                    "anyOf": [_TEXT, {"type": "boolean"}],
                    "description": "the model whose circuit to close; true for all; administrators alone may",
                }
            }
        ),
        output_schema=_object({"circuitState": _by_model(_CIRCUIT, "the circuit of each model")}, "circuitState"),
        annotations={
            "readOnlyHint": False,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
        errors=[ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN],
    )
    async def router_fallback(arguments: JsonObject, context: Context) -> JsonObject:
        if reset := arguments.get("reset", False):
            if not context.caller.is_admin:
                # All callers share the circuits: to close one sends their calls, too, to a model that fails.
                raise Forbidden(
                    "Only an administrator may reset circuits; everyone may see them.",
                    hint="call it without `reset`; an operator can reset them with `toolpost models reset`, or set"
                    " `admin = true` for the caller",
                )
            router.reset_circuits(None if reset is True else reset)
        return {"circuitState": {name: render_circuit(breaker) for name, breaker in sorted(router.breakers.items())}}

    @tool(
        name="router_stats",
        title="Statistics of models",
        description="Count what models were asked, by all gateways of this store: calls, failures, tokens, cost, latency.",
        input_schema=_object({}),
        output_schema=_object({"models": _by_model(_MODEL_STATS, "what is known of each model")}, "models"),
        annotations=_READ_ONLY,
    )
    async def router_stats(arguments: JsonObject) -> JsonObject:  # noqa: ARG001 (takes none)
        known = await router.stats.read()
        return {"models": {name: render_totals(known.get(name, Totals())) for name in sorted({*known, *router.models})}}

    for declared in (router_score, router_call, router_fallback, router_stats):
        plugin.add(declared)
    return plugin


def _read_request(arguments: JsonObject) -> ScoreRequest:
    context: dict[str, Any] = arguments.get("context", {})
    task: dict[str, Any] = context.get("task", {})
    deadline_ms = task.get("deadline_ms")
    return ScoreRequest(
        prompt=arguments["prompt"],
        domain=task.get("domain"),
        skills=task.get("skill", ()),
        tokens=task.get("tokens"),
        deadline_s=None if deadline_ms is None else deadline_ms / 1000,
        output_tokens=arguments.get("max_tokens"),
        preferences=context.get("operatorPreference", {}),
    )


def render_circuit(breaker: Breaker) -> JsonObject:
    """Show the circuit of a candidate."""
    report = breaker.report
    return {
        "state": report.state.value,
        "failures": report.failures,
        "retry_after_ms": round(report.retry_s * 1000),
    }


def render_totals(totals: Totals) -> JsonObject:
    """Show the statistics of a candidate."""
    return {
        "calls": totals.attempts,
        "successes": totals.attempts - totals.failures,
        "failures": totals.failures,
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "cost": round(totals.cost, 9),
        "latency_ms": {
            "p50": totals.percentile_ms(0.5),
            "p95": totals.percentile_ms(0.95),
            "p99": totals.percentile_ms(0.99),
        },
    }
