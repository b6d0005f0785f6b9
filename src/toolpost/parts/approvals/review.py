"""The arguments of a call as voters see them: everything but texts and numbers below secret names.

`redact` hides all that is below such a name, and what is beyond its limits. It would let the caller, who chooses the names,
choose what voters do not see.
"""

from typing import Final

from toolpost.base import REDACTED, Json, is_secret_name

NAME_LIMIT: Final = 256
NAMES_LIMIT: Final = 2_000
"""Different names of one value: to judge one takes microseconds."""


def redact_for_review(value: Json) -> Json:
    """Return the value with its structure, and without secrets; raises `ValueError` for what is beyond the limits."""
    return _redact_leaves(value, {}, is_secret=False)


def _redact_leaves(value: Json, judged: dict[str, bool], *, is_secret: bool) -> Json:
    if isinstance(value, dict):
        for name in value:
            if name not in judged:
                if len(name) > NAME_LIMIT or len(judged) >= NAMES_LIMIT:
                    raise ValueError(
                        f"a name has more than {NAME_LIMIT} characters, or there are {len(judged)} and more"
                    )
                judged[name] = is_secret_name(name)
        return {
            name: _redact_leaves(inner, judged, is_secret=is_secret or judged[name]) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_redact_leaves(item, judged, is_secret=is_secret) for item in value]
    return REDACTED if is_secret and value is not None and not isinstance(value, bool) else value
