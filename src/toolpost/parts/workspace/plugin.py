"""The six tools `workspace__…`; `WorkspaceService` does the work."""

from typing import Final

from toolpost import Context, ErrorCode, Plugin, __version__
from toolpost.base import JsonObject
from toolpost.fairness import Callers, Shares
from toolpost.parts.workspace import schemas
from toolpost.parts.workspace.query import SearchRequest
from toolpost.parts.workspace.service import WorkspaceService

SEARCH_LIMIT_S: Final = 120.0

_READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}
_COMMON_ERRORS: Final = (
    ErrorCode.INVALID_PARAMS,
    ErrorCode.QUEUE_OVERLOADED,
    ErrorCode.TOOL_TIMEOUT,
    ErrorCode.CANCELLED,
)
_INDEX_ERRORS: Final = (*_COMMON_ERRORS, ErrorCode.NOT_FOUND, ErrorCode.CAPABILITY_MISSING, ErrorCode.HANDLER_ERROR)


def workspace_plugin(service: WorkspaceService, callers: Callers | None = None) -> Plugin:
    """Make the plugin; calls in flight are shared fairly among `callers`."""
    plugin = Plugin("workspace", version=__version__)
    shares = Shares("calls of the workspace", service.spec.in_flight, callers or Callers())
    _add_build(plugin, service)
    _add_search(plugin, service, shares)
    _add_show(plugin, service, shares)
    _add_status(plugin, service, shares)
    return plugin


def _add_build(plugin: Plugin, service: WorkspaceService) -> None:
    @plugin.tool(
        title="Build the index",
        description="Build or update the code index of the workspace. Files that have not changed are not read again; "
        "searches go on in the old index until the new one is whole.",
        input_schema=schemas.BUILD_INPUT,
        output_schema=schemas.BUILD_OUTPUT,
        annotations={"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        errors=_INDEX_ERRORS,
        timeout_s=service.spec.build_limit_s,
        # One build at a time: two at once would only slow each other down.
        concurrency="serial",
        style="plain",
    )
    async def index_build(arguments: JsonObject, ctx: Context) -> JsonObject:
        return await service.build(
            ctx,
            repo=arguments.get("repo"),
            mode=arguments.get("mode", "all"),
            incremental=arguments.get("incremental", True),
            force=arguments.get("force", False),
        )


def _add_search(plugin: Plugin, service: WorkspaceService, shares: Shares) -> None:
    @plugin.tool(
        title="Search the code",
        description="Search code and prose: a name finds its definition first, a phrase in quotes is found to the letter, "
        "and plain words are looked for in names, docstrings, comments and documents. Lines are those of the files now.",
        input_schema=schemas.SEARCH_INPUT,
        output_schema=schemas.SEARCH_OUTPUT,
        annotations=_READ_ONLY,
        errors=(*_INDEX_ERRORS, ErrorCode.NO_INDEX),
        timeout_s=SEARCH_LIMIT_S,
        style="plain",
    )
    async def search(arguments: JsonObject, ctx: Context) -> JsonObject:
        filters = {name: value for name, value in arguments.items() if name != "repo"}
        with shares.held(ctx.caller.id):
            return await service.search(SearchRequest(**filters), arguments.get("repo"))


def _add_show(plugin: Plugin, service: WorkspaceService, shares: Shares) -> None:
    @plugin.tool(
        title="Show a file",
        description="Show lines of a file of the workspace, numbered; a long file is shown in parts.",
        input_schema=schemas.SHOW_INPUT,
        output_schema=schemas.SHOW_OUTPUT,
        annotations=_READ_ONLY,
        errors=(*_COMMON_ERRORS, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN, ErrorCode.INVALID_REQUEST),
        timeout_s=SEARCH_LIMIT_S,
        style="plain",
    )
    async def show_file(arguments: JsonObject, ctx: Context) -> JsonObject:
        path, repo = arguments["path"], arguments.get("repo")
        with shares.held(ctx.caller.id):
            return await service.show(path, repo, arguments.get("start"), arguments.get("end"))


def _add_status(plugin: Plugin, service: WorkspaceService, shares: Shares) -> None:
    @plugin.tool(
        title="Index status",
        description="How the index of one repository is doing: its age, its size, git's head, and what has changed since.",
        input_schema=schemas.STATUS_INPUT,
        output_schema=schemas.STATUS_OUTPUT,
        annotations=_READ_ONLY,
        errors=_INDEX_ERRORS,
        timeout_s=SEARCH_LIMIT_S,
        style="plain",
    )
    async def index_status(arguments: JsonObject, ctx: Context) -> JsonObject:
        with shares.held(ctx.caller.id):
            return await service.index_status(arguments.get("repo"))

    @plugin.tool(
        title="Check the workspace",
        description="What the workspace is set to, which languages it knows, its limits, and warnings with codes.",
        input_schema=schemas.NOTHING,
        output_schema=schemas.CHECK_OUTPUT,
        annotations=_READ_ONLY,
        errors=_COMMON_ERRORS,
        timeout_s=SEARCH_LIMIT_S,
        style="plain",
    )
    async def check_status(ctx: Context) -> JsonObject:
        with shares.held(ctx.caller.id):
            return await service.check_status()

    @plugin.tool(
        title="Workspace status",
        description="Every repository of the workspace and how its index is doing.",
        input_schema=schemas.NOTHING,
        output_schema=schemas.WORKSPACE_OUTPUT,
        annotations=_READ_ONLY,
        errors=_INDEX_ERRORS,
        timeout_s=SEARCH_LIMIT_S,
        style="plain",
    )
    async def workspace_status(ctx: Context) -> JsonObject:
        with shares.held(ctx.caller.id):
            return await service.workspace_status()
