"""Repairs for the mistakes that models make most often: quoted numbers, JSON in a string, a near miss in a list of values."""

import json
import re
from collections.abc import Sequence

from toolpost.base.ids import Json
from toolpost.base.nearest import correct_spelling
from toolpost.base.values import ABSENT, is_among, is_of_type, type_of
from toolpost.contracts.display import TEXT_LIMIT, to_json_text, truncate
from toolpost.contracts.issues.location import Location

EXAMPLES = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H30M",
    "email": "name@example.com",
    "hostname": "example.com",
    "idn-email": "name@example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "iri": "https://example.com/",
    "json-pointer": "/a/b",
    "regex": "^[a-z]+$",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uri-reference": "/path",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""An example of each format."""

_JSON_LIMIT = 100_000
_BOOLEAN_WORDS = {"true": True, "false": False, "yes": True, "no": False}

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?:[/:?#]\S*)?")


def suggest_type(location: Location, types: Sequence[str]) -> str | None:
    """Suggest how to send a value as one of these types; None if nothing is known to help."""
    value = location.value
    if value is None:
        return _suggest_omission(location)
    if isinstance(value, str) and (suggestion := _suggest_unquoting(location, types)):
        return suggestion
    if isinstance(value, list) and len(value) == 1 and is_of_type(value[0], types):
        return f"send {location.quote(value[0]) or 'the item'} itself, not an array"
    if isinstance(value, bool | int | float) and (suggestion := _suggest_from_number(location, types)):
        return suggestion
    if "array" in types:
        shown = location.quote(value)
        return f"wrap it in an array: [{shown}]" if shown else "wrap it in an array"
    return None


def _suggest_omission(location: Location) -> str | None:
    return "leave it out" if location.is_optional else None


def _suggest_unquoting(location: Location, types: Sequence[str]) -> str | None:
    parsed = _parse_json(location.value)
    if parsed is ABSENT or isinstance(parsed, str) or not is_of_type(parsed, types):
        return None
    if isinstance(parsed, dict | list):
        return f"send the {type_of(parsed)} itself, not a string that holds JSON"
    return f"send {location.quote(parsed) or 'it'} without quotes"


def _parse_json(text: str) -> Json:
    spelled = _BOOLEAN_WORDS.get(text.strip().lower())
    if spelled is not None:
        return spelled
    try:
        return json.loads(text, parse_constant=_reject_constant) if len(text) <= _JSON_LIMIT else ABSENT
    except (ValueError, RecursionError):
        return ABSENT


def _reject_constant(constant: str) -> Json:
    raise ValueError(constant)


def _suggest_from_number(location: Location, types: Sequence[str]) -> str | None:
    value = location.value
    if "string" in types:
        text = location.quote(value)
        return f'send it as a string: "{text}"' if text else "send it as a string"
    if location.is_secret:
        return None
    if "boolean" in types and value in (0, 1):
        return f"send {to_json_text(bool(value))}"
    if "integer" in types and isinstance(value, float) and abs(value) < 1e15:
        return f"send a whole number, such as {round(value)}"
    return None


def suggest_option(location: Location, options: list[Json]) -> str | None:
    """Suggest the option that was probably meant; None if none comes near."""
    value = location.value
    if value is None:
        return _suggest_omission(location)
    texts = [option for option in options if isinstance(option, str)]
    if isinstance(value, str):
        if near := correct_spelling(value, texts):
            return f"did you mean {to_json_text(truncate(near))}?"
        parsed = _parse_json(value)
        shown = location.quote(parsed) if is_among(parsed, options) else None
        return f"send {shown} without quotes" if shown else None
    if isinstance(value, bool | int | float) and (shown := location.quote(value)) in texts:
        return f'send it as a string: "{shown}"'
    if isinstance(value, list) and len(value) == 1 and is_among(value[0], options):
        return "send the item itself, not an array"
    return None


def suggest_format(location: Location, name: str) -> str | None:
    """Suggest the text rewritten in this format, or else an example of it; None for a format without one."""
    example = EXAMPLES.get(name)
    rewritten = None if location.is_secret else _rewrite(name, str(location.value))
    return rewritten or (f"for example {example}" if example else None)


def _rewrite(name: str, text: str) -> str | None:
    if len(text) > TEXT_LIMIT:
        return None
    moment = _DATE_TIME.fullmatch(text)
    if name == "date-time" and _DATE.fullmatch(text):
        return f"add a time and a zone: {text}T00:00:00Z"
    if name == "date-time" and moment:
        date, time, zone = moment.groups()
        return f"write it as {date}T{time if len(time) > 5 else time + ':00'}{zone or 'Z'}"
    if name == "date" and moment:
        return f"send only the date: {moment[1]}"
    if name in ("uri", "iri") and _HOST.fullmatch(text):
        return f"add the scheme: https://{text}"
    return None
