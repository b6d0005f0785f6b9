"""`time__current_time` and `time__convert_time`: the time, here and elsewhere."""

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from toolpost import ErrorCode, InvalidArguments, Plugin, __version__
from toolpost.base import JsonObject, nearest_name

plugin = Plugin("time", version=__version__)

_ZONE = {"type": "string", "description": "IANA time zone name, such as Europe/Berlin"}

_MOMENT = {
    "type": "object",
    "properties": {
        "timezone": {"type": "string"},
        "datetime": {"type": "string", "format": "date-time", "description": "ISO 8601, with the offset"},
        "weekday": {"type": "string"},
        "utcOffset": {"type": "string", "pattern": "^[+-][0-9]{2}:[0-9]{2}"},
        "isDst": {"type": "boolean"},
    },
    "required": ["timezone", "datetime", "weekday", "utcOffset", "isDst"],
    "additionalProperties": False,
}

_READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}


@plugin.tool(
    title="Current time",
    description="What time it is now, in a time zone (UTC unless one is named).",
    input_schema={"type": "object", "properties": {"timezone": {**_ZONE, "default": "UTC"}}},
    output_schema=_MOMENT,
    annotations=_READ_ONLY,
    errors=[ErrorCode.INVALID_PARAMS],
)
async def current_time(arguments: JsonObject) -> JsonObject:
    """Tell the time."""
    return _describe_time(datetime.now(_zone(arguments, "timezone", "UTC")))


@plugin.tool(
    title="Convert time",
    description="What a time in one time zone is in another. Says the difference between the two, too.",
    input_schema={
        "type": "object",
        "properties": {
            "source_timezone": _ZONE,
            "time": {
                "type": "string",
                "description": "24-hour time, HH:MM or HH:MM:SS",
                "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
                "examples": ["14:30"],
            },
            "target_timezone": _ZONE,
            "date": {
                "type": "string",
                "format": "date",
                "description": "The day it is about; today unless given",
            },
        },
        "required": ["source_timezone", "time", "target_timezone"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "source": _MOMENT,
            "target": _MOMENT,
            "differenceHours": {"type": "number", "description": "Target minus source"},
        },
        "required": ["source", "target", "differenceHours"],
        "additionalProperties": False,
    },
    annotations=_READ_ONLY,
    errors=[ErrorCode.INVALID_PARAMS],
)
async def convert_time(arguments: JsonObject) -> JsonObject:
    """Convert a time of day."""
    source_zone = _zone(arguments, "source_timezone")
    target_zone = _zone(arguments, "target_timezone")
    day = date.fromisoformat(arguments["date"]) if "date" in arguments else datetime.now(source_zone).date()
    source = datetime.combine(day, time.fromisoformat(arguments["time"]), source_zone)
    target = source.astimezone(target_zone)
    difference = (target.utcoffset() or UTC.utcoffset(None)) - (source.utcoffset() or UTC.utcoffset(None))
    return {
        "source": _describe_time(source),
        "target": _describe_time(target),
        "differenceHours": difference.total_seconds() / 3600,
    }


def _zone(arguments: JsonObject, argument: str, default: str = "") -> ZoneInfo:
    name = arguments.get(argument, default)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = nearest_name(name, available_timezones())
        issue = {
            "path": f"/{argument}",
            "keyword": "timezone",
            "message": f"`{name}` is not an IANA time zone",
            "received": name,
        }
        if near:
            issue["suggestion"] = f"did you mean `{near}`?"
        raise InvalidArguments(
            f"`{name}` is not an IANA time zone.", hint="use a name such as Europe/Berlin", issues=[issue]
        ) from error


def _describe_time(moment: datetime) -> JsonObject:
    offset = moment.isoformat()[-6:]
    return {
        "timezone": str(moment.tzinfo),
        "datetime": moment.isoformat(timespec="seconds"),
        "weekday": moment.strftime("%A"),
        "utcOffset": offset,
        "isDst": bool(moment.dst()),
    }
