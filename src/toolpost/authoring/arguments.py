"""Arguments that come as text (of prompts, of resource templates): converted by the hints of a function's parameters.

Text is what the protocol has. A parameter that is hinted otherwise gets what its text means: `3` for an `int`, JSON for a list.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from toolpost.contracts.errors import InvalidArguments


class TextParameter:
    """One parameter of a function, which is given text."""

    def __init__(self, function: str, parameter: inspect.Parameter, hint: Any) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"`{function}`: `{parameter}`: each argument is taken by name")
        self.name = parameter.name
        self.is_required = parameter.default is parameter.empty
        self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
        metadata = getattr(hint, "__metadata__", ())
        described = [item for item in metadata if getattr(item, "description", None)]
        self.description: str = (
            described[0].description if described else next((item for item in metadata if isinstance(item, str)), "")
        )
        self.choices = _choices_of(hint)
        """The values that it may have, where the hint names them."""

    def convert(self, text: str) -> Any:
        """Return the text as the hint says; raise `InvalidArguments` if it cannot be that."""
        try:
            return self._adapter.validate_strings(text)
        except ValidationError as error:
            try:
                return self._adapter.validate_python(json.loads(text))
            except ValueError:
                # pydantic's message contains the value, which may be a secret.
                reason = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise InvalidArguments(
            f"The argument `{self.name}` is not valid: {reason}",
            issues=[{"path": f"/{self.name}", "message": reason}],
        )


def text_parameters(function: Callable[..., Any], *, skip: str | None) -> dict[str, TextParameter]:
    """Return the parameters of a function by name; `skip` is the one for the context. Text where there is no hint.

    Raises `TypeError`, which names the function.
    """
    hints = get_type_hints(function, include_extras=True)
    return {
        name: TextParameter(function.__name__, parameter, hints.get(name, str))
        for name, parameter in inspect.signature(function).parameters.items()
        if name != skip
    }


def convert_arguments(parameters: Mapping[str, TextParameter], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments for a function; raise `InvalidArguments` for one that is missing, unknown or wrong."""
    if unknown := sorted(given.keys() - parameters.keys()):
        raise InvalidArguments(f"There is no argument `{unknown[0][:100]}`.", hint=f"known: {', '.join(parameters)}")
    missing = [name for name, parameter in parameters.items() if parameter.is_required and name not in given]
    if missing:
        raise InvalidArguments(f"The argument `{missing[0]}` is missing.", issues=[{"path": f"/{missing[0]}"}])
    return {name: parameters[name].convert(text) for name, text in given.items()}


def _choices_of(hint: Any) -> tuple[str, ...]:
    origin = get_origin(hint)
    if origin is Literal:
        return tuple(str(value) for value in get_args(hint))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return tuple(str(member.value) for member in hint)
    if hint is bool:
        return ("true", "false")
    found = [choices for part in get_args(hint) if part is not type(None) and (choices := _choices_of(part))]
    return found[0] if found else ()
