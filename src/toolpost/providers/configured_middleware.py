"""Middleware of users that no plugin brings: named by the configuration, or given by a program."""

import inspect
from collections.abc import Iterable
from typing import Any, Final

from toolpost.authoring import Middleware
from toolpost.authoring.middleware import NamedMiddleware
from toolpost.contracts.errors import BadConfiguration
from toolpost.providers.references import resolve

MIDDLEWARE_SIGNATURE: Final = "write `async def name(call: CallRequest, proceed: Next) -> CallResult`"


def problem_of_middleware(middleware: Any) -> str | None:
    """Describe why an object is no middleware; None if it may be one."""
    if not callable(middleware):
        return "is not a function"
    if not inspect.iscoroutinefunction(middleware) and not inspect.iscoroutinefunction(type(middleware).__call__):
        return "is not an `async def`"
    try:
        inspect.signature(middleware).bind(object(), object())
    except TypeError:
        return "does not take a call and the next handler"
    return None


def load_middleware(references: Iterable[str]) -> list[NamedMiddleware]:
    """Load middleware by `package.module:function`; raise `BadConfiguration` if one is missing.

    A plugin that cannot be loaded is left out. Middleware may restrict what callers can do, so nothing is served without it.
    """
    loaded = []
    for reference in references:
        try:
            found = resolve(reference)
        except Exception as error:
            raise BadConfiguration(
                f"middleware.load: `{reference}` cannot be loaded: {type(error).__name__}: {error}",
                hint="write package.module:function, of a module beside the configuration or an installed one",
            ) from error
        if problem := problem_of_middleware(found):
            raise BadConfiguration(f"middleware.load: `{reference}` {problem}.", hint=MIDDLEWARE_SIGNATURE)
        loaded.append(NamedMiddleware(reference, found))
    return loaded


def name_middleware(middleware: Iterable[Middleware], prefix: str = "") -> list[NamedMiddleware]:
    """Name functions, and objects with `__call__`, as they are written."""
    return [
        NamedMiddleware(prefix + getattr(function, "__name__", type(function).__name__), function)
        for function in middleware
    ]
