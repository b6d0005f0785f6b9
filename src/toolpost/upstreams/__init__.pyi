from toolpost.upstreams.client import McpClient as McpClient
from toolpost.upstreams.server_requests import ClientChannel as ClientChannel
from toolpost.upstreams.server_requests import ask_form as ask_form
from toolpost.upstreams.spec import ServerSpec as ServerSpec
from toolpost.upstreams.transport import ConnectionLost as ConnectionLost
from toolpost.upstreams.transport import ServerRefused as ServerRefused
