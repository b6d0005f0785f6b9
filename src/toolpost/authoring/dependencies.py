"""Dependencies of a plugin's functions, found by type: values that live as long as the plugin, and values made for each call.

    @plugin.lifespan
    async def open_database() -> AsyncIterator[Database]:
        async with connect("notes.db") as database:
            yield database

    @plugin.tool
    async def count(database: Database, topic: str) -> int: ...

`inject` wraps a function whose parameters are hinted with a provided type. A function that has none is not wrapped, and its
calls do not come past here.
"""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from toolpost.authoring.context import Context
from toolpost.contracts.errors import ToolFailed

Function = Callable[..., Any]

_ITERATORS: Final = (AsyncIterator, AsyncGenerator, Iterator, Generator)
_CONTEXT: Final = "toolpost_context"
"""The parameter that a wrapper adds when a dependency takes the context and the function itself does not."""


@dataclass(frozen=True, kw_only=True)
class DependencyFactory:
    """A function that gives the value of one type."""

    kind: Any
    function: Function
    is_per_call: bool
    needs: dict[str, Any]
    """Its parameters that are provided, and their types."""
    context_name: str | None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function)


class Dependencies:
    """The types that a plugin provides, and the values of those that live as long as it does."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._providers: dict[Any, DependencyFactory] = {}
        self._values: dict[Any, Any] = {}
        self._overrides: dict[Any, Any] = {}
        self._users = 0
        self._running: tuple[asyncio.Task[None], asyncio.Event] | None = None

    def add(self, function: Function, *, is_per_call: bool) -> None:
        """Provide the type that a function returns or yields, or a class; raises TypeError if its hints do not say which."""
        name = getattr(function, "__name__", repr(function))
        is_class = inspect.isclass(function)
        hints = _hints_of(function.__init__ if is_class else function)
        kind = function if is_class else hints.get("return")
        if get_origin(kind) in _ITERATORS:
            kind = get_args(kind)[0]
        if kind is None or kind is type(None):
            raise TypeError(f"`{name}`: hint what it returns or yields; it is provided to parameters of that type")
        if kind in self._providers:
            other = self._providers[kind].function.__name__
            raise TypeError(f"`{name}`: `{other}` already provides {_show(kind)}")
        context_name = _context_in(hints)
        if context_name is not None and not is_per_call:
            raise TypeError(f"`{name}`: a lifespan belongs to no call, so it has no context")
        needs: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            if (need := self._providers.get(hints.get(parameter.name))) is not None:
                if need.is_per_call and not is_per_call:
                    raise TypeError(f"`{name}` outlives a call, so it cannot take {_show(need.kind)}, made for each")
                needs[parameter.name] = need.kind
            elif parameter.name != context_name and parameter.default is parameter.empty:
                raise TypeError(f"`{name}`: nothing provides its parameter `{parameter.name}`; declare that first")
        self._providers[kind] = DependencyFactory(
            kind=kind, function=function, is_per_call=is_per_call, needs=needs, context_name=context_name
        )

    @contextmanager
    def override(self, kind: Any, value: Any) -> Iterator[None]:
        """Provide this value instead, while the context is open; its lifespan is not started."""
        if kind not in self._providers:
            raise TypeError(f"the plugin `{self._plugin}` does not provide {_show(kind)}")
        before = dict(self._overrides)
        self._overrides[kind] = value
        try:
            yield
        finally:
            self._overrides = before

    def inject(self, function: Function, owner: type | None = None) -> Function:
        """Return a function without the parameters that are provided; the same one if there are none.

        With `owner`, a class that is provided, the function is one of its methods.
        """
        if not self._providers:
            return function
        hints = _hints_of(function)
        signature = inspect.signature(function)
        if owner is not None:
            hints[next(iter(signature.parameters))] = owner
        wanted = {name: hints[name] for name in signature.parameters if hints.get(name) in self._providers}
        if not wanted:
            return function
        used = self._all_used(wanted.values())
        is_async = inspect.iscoroutinefunction(function)
        if not is_async and (slow := [each for each in used if each.is_per_call and each.is_async]):
            raise TypeError(
                f"`{function.__name__}` is synchronous, and {_show(slow[0].kind)} is provided by an `async def`; make both async"
            )
        kept = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        shown = {name: hint for name, hint in hints.items() if name not in wanted}
        context_name = _context_in(hints)
        if context_name is None and any(each.context_name for each in used):
            kept.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=Context))
            shown[_CONTEXT] = Context
        wrap = self._wrap_async if is_async else self._wrap_sync
        wrapper: Any = wrap(function, wanted, context_name or _CONTEXT)
        # What reads the wrapper, for its schema and its context, sees neither the dependencies nor unresolved hints.
        wrapper.__signature__ = signature.replace(parameters=kept)
        wrapper.__annotations__ = shown
        return cast("Function", wrapper)

    def _wrap_async(self, function: Function, wanted: dict[str, Any], context_name: str) -> Function:
        @functools.wraps(function)
        async def call(*arguments: Any, **named: Any) -> Any:
            given, context = _split(function, arguments, named, context_name)
            async with AsyncExitStack() as stack:
                made: dict[Any, Any] = {}
                for name, kind in wanted.items():
                    if name not in given:
                        given[name] = await self._make_async(kind, context, made, stack)
                return await function(**given)

        return call

    def _wrap_sync(self, function: Function, wanted: dict[str, Any], context_name: str) -> Function:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            given, context = _split(function, arguments, named, context_name)
            with ExitStack() as stack:
                made: dict[Any, Any] = {}
                for name, kind in wanted.items():
                    if name not in given:
                        given[name] = self._make_sync(kind, context, made, stack)
                return function(**given)

        return call

    async def open(self) -> None:
        """Run the lifespans up to their `yield`, in order; raises what one of them raises, after the others were closed."""
        self._users += 1
        if self._users > 1 or all(each.is_per_call for each in self._providers.values()):
            return
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        # In a task of its own: a lifespan may hold a task group, which has to be left in the task that entered it, while
        # starting and stopping each have a time limit.
        task = asyncio.create_task(self._live(opened, stop), name=f"lifespan of {self._plugin}")
        try:
            await asyncio.shield(opened)
        except BaseException:
            self._users -= 1
            task.cancel()
            await asyncio.wait([task])
            raise
        self._running = task, stop

    async def close(self) -> None:
        """Run the rest of the lifespans, the last one first; raises what one of them raises."""
        self._users -= 1
        if self._users or self._running is None:
            return
        (task, stop), self._running = self._running, None
        stop.set()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _live(self, opened: "asyncio.Future[None]", stop: asyncio.Event) -> None:
        try:
            async with AsyncExitStack() as stack:
                for kind, provider in self._providers.items():
                    if not provider.is_per_call and kind not in self._overrides:
                        arguments = {name: self._value_of(need) for name, need in provider.needs.items()}
                        self._values[kind] = await _enter_async(provider.function, arguments, stack)
                opened.set_result(None)
                await stop.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._values.clear()

    def _value_of(self, kind: Any) -> Any:
        if kind in self._overrides:
            return self._overrides[kind]
        try:
            return self._values[kind]
        except KeyError:
            raise ToolFailed(f"{_show(kind)} is not open: the plugin `{self._plugin}` is not served.") from None

    async def _make_async(self, kind: Any, context: Context | None, made: dict[Any, Any], stack: AsyncExitStack) -> Any:
        provider = self._providers[kind]
        if not provider.is_per_call or kind in self._overrides:
            return self._value_of(kind)
        if kind not in made:
            arguments = {
                name: await self._make_async(need, context, made, stack) for name, need in provider.needs.items()
            }
            if provider.context_name is not None:
                arguments[provider.context_name] = context
            made[kind] = await _enter_async(provider.function, arguments, stack)
        return made[kind]

    def _make_sync(self, kind: Any, context: Context | None, made: dict[Any, Any], stack: ExitStack) -> Any:
        provider = self._providers[kind]
        if not provider.is_per_call or kind in self._overrides:
            return self._value_of(kind)
        if kind not in made:
            arguments = {name: self._make_sync(need, context, made, stack) for name, need in provider.needs.items()}
            if provider.context_name is not None:
                arguments[provider.context_name] = context
            if inspect.isgeneratorfunction(provider.function):
                made[kind] = stack.enter_context(contextmanager(provider.function)(**arguments))
            else:
                made[kind] = provider.function(**arguments)
        return made[kind]

    def _all_used(self, kinds: Any) -> list[DependencyFactory]:
        """Return the providers of these types, and those that they need in turn."""
        used: dict[Any, DependencyFactory] = {}
        waiting = list(kinds)
        while waiting:
            if (kind := waiting.pop()) not in used:
                used[kind] = self._providers[kind]
                waiting += used[kind].needs.values()
        return list(used.values())


def _split(
    function: Function, arguments: tuple[Any, ...], named: dict[str, Any], context_name: str
) -> tuple[dict[str, Any], Context | None]:
    """Return the arguments of a function by name, and the context of the call."""
    context = named.pop(_CONTEXT, None) if context_name == _CONTEXT else named.get(context_name)
    # Positional arguments come only from a direct call, as in a unit test.
    given = inspect.signature(function).bind_partial(*arguments, **named).arguments if arguments else named
    return given, context


def _context_in(hints: dict[str, Any]) -> str | None:
    return next((name for name, hint in hints.items() if hint is Context and name != "return"), None)


async def _enter_async(function: Function, arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    if inspect.isasyncgenfunction(function):
        return await stack.enter_async_context(asynccontextmanager(function)(**arguments))
    if inspect.isgeneratorfunction(function):
        return stack.enter_context(contextmanager(function)(**arguments))
    value = function(**arguments)
    if inspect.isclass(function) and hasattr(value, "__aenter__"):
        return await stack.enter_async_context(value)
    if inspect.isclass(function) and hasattr(value, "__enter__"):
        return stack.enter_context(value)
    return await value if inspect.iscoroutine(value) else value


def _hints_of(function: Function) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _show(kind: Any) -> str:
    return f"`{getattr(kind, '__name__', kind)}`"
