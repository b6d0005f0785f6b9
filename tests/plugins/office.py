"""Four plugins with sixty tools between them: enough that not all of them are sent at once."""

from typing import Any

from toolpost import Context, Plugin
from toolpost.authoring.tool import Tool, tool

TEXT = {"type": "string"}

_VERBS = {
    "create": "Create a new {}.",
    "delete": "Delete a {} for good.",
    "list": "List every {}, newest first.",
    "update": "Change an existing {}.",
    "search": "Search for a {} by its words.",
}
_NOUNS = {
    "calendar": {"event": "calendar event with a start and an end", "reminder": "reminder that rings", "room": "room"},
    "mail": {"message": "mail message", "folder": "mailbox folder", "filter": "rule that sorts incoming mail"},
    "shop": {"order": "customer order", "invoice": "invoice of an order", "product": "product for sale"},
    "wiki": {"page": "wiki page in markdown", "comment": "comment on a page", "attachment": "file attached to a page"},
}


def _made(verb: str, noun: str, what: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {f"{noun}_id": TEXT | {"description": f"Which {noun}."}, "count": {"type": "integer"}},
        "required": [f"{noun}_id"],
    }

    @tool(name=f"{verb}_{noun}", description=_VERBS[verb].format(what), input_schema=schema)
    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"did": f"{verb} {noun}", "with": arguments}

    return run


def _plugin(name: str) -> Plugin:
    return Plugin(name, version="1", tools=[_made(v, n, what) for v in _VERBS for n, what in _NOUNS[name].items()])


calendar, mail, shop, wiki = (_plugin(name) for name in _NOUNS)

OFFICE = tuple(f"tests.plugins.office:{name}" for name in _NOUNS)


@mail.tool
async def send_slowly(steps: int, ctx: Context) -> str:
    """Send a newsletter to every subscriber, step by step."""
    import anyio

    for step in range(steps):
        ctx.progress(step, steps, f"step {step}")
        await anyio.sleep(0.05)
    return "sent"
