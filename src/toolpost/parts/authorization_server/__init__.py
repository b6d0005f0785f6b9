"""Login for clients: an OAuth 2.1 authorization server for MCP clients that support only browser login.

    client           browser                          gateway
      | GET /mcp -> 401, metadata ------------------------> |
      | POST /register, or a client id that is a URL -----> |
      | opens -----> | GET /authorize --------------------> |  a request, bound to this browser by a cookie
      |              | GET and POST /authorize/consent ---> |  who it is, then what is allowed
      | <-- code --- | <-- redirect ----------------------- |
      | POST /token: code and PKCE verifier --------------> |  a grant: access token, rotating refresh token

The SDK (`mcp.server.auth`) implements the protocol's endpoints. Ours are the tables, the identity of people, and the pages.

settings    `[login]`
records     what is stored, always as hashes, and the transactions on it
server      the SDK's provider: requests, codes, tokens, revocation
scopes      what a client may do with a caller's tools
clients     registered clients, and those whose client id is the URL of a document
pace        how often strangers may register a client or begin a login
passphrase  hashes of passphrases, and who may try how often
provider    people of an OpenID Connect provider
pages       the HTML of the pages
routes      the HTTP paths of clients and of the pages
api         /api/logins: who is logged in, and an end to it
commands    the same at the command line
part        what the gateway is given; `doctor` is what `toolpost doctor` says
"""

from toolpost.parts import Command, Part

PART = Part(
    name="authorization_server",
    summary="Login in the browser for MCP clients.",
    opens="toolpost.parts.authorization_server.part:open_authorization_server",
    settings=("toolpost.parts.authorization_server.settings:LOGIN",),
    migrations="toolpost.parts.authorization_server.migrations",
    doctor="toolpost.parts.authorization_server.doctor:LoginDoctor",
    commands={
        "auth passphrase": Command(
            "toolpost.parts.authorization_server.commands:passphrase",
            "Hash a passphrase, for `passphrase_hash` in [callers.NAME].",
        ),
        "auth sessions": Command(
            "toolpost.parts.authorization_server.commands:sessions",
            "List or revoke the logins of clients at this gateway.",
        ),
    },
    is_required="toolpost.parts.authorization_server.part:is_required",
    find_idle="toolpost.parts.authorization_server.part:find_idle",
)
