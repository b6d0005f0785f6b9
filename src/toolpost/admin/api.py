"""The administrator's HTTP API for the servers behind the gateway, which `toolpost servers` uses.

GET  /api/servers               the state of every server
GET  /api/servers/NAME          the state of one
POST /api/servers/NAME/ACTION   `start`, `stop` or `restart` it; answers with its state afterwards
"""

from toolpost.admin.servers import act_on_server, report_server, report_servers
from toolpost.base.ids import Json
from toolpost.endpoints.http.routes import HttpContext, JsonApi, Route, RouteRequest

SERVERS_PATH = "/api/servers"


def make_server_api(http: HttpContext) -> JsonApi:
    """Make the paths; only administrators may use them."""
    servers = http.servers

    async def list_servers(_: RouteRequest) -> Json:
        return {"servers": await report_servers(servers)}

    async def show_server(request: RouteRequest) -> Json:
        return await report_server(servers, request.path["name"])

    async def act(request: RouteRequest) -> Json:
        name, action = request.path["name"], request.path["action"]
        return await act_on_server(servers, name, action, caller=request.admission.caller.id)

    one = f"{SERVERS_PATH}/{{name}}"
    return JsonApi(
        http,
        [
            Route(method="GET", path=SERVERS_PATH, handler=list_servers, is_for_admins=True),
            Route(method="GET", path=one, handler=show_server, is_for_admins=True),
            Route(
                method="POST",
                path=f"{one}/{{action}}",
                handler=act,
                is_for_admins=True,
                role="operator",
                summary="start, stop or restart a server",
                errors=(503,),
            ),
        ],
    )
