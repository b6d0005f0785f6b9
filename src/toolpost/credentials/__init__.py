"""Credentials with which the gateway reaches servers: kept encrypted, shared by all callers or one caller's own.

vault       credentials by server, owner and name, on the store
values      values of the owner in headers and environment variables
caller_credentials   both of them, with logins, for requests of parts
keys        where the encryption key is kept: a file, a variable or the keychain
keychain    the keychain of the operating system
server_tokens  the access token of a server and an owner: read, renewed in time, replaced when it is refused
grant       tokens and the client registration that got them, as they are stored
login_flow  one login: the URL that a person opens, and the redirect that comes back
device      the same on another device, with a code
gateway_logins  logins through the gateway: whose they are, their address, and the calls that wait for them
expiring    the logins that a person has to renew
subjects    the tokens with which callers came, for servers whose tokens are got in exchange for them
probe       asks a server as a stranger, to find its `challenge`
authorization_servers, token_requests  the protocol, by functions of the SDK: discovery, registration, requests for tokens
fetch       requests to addresses that servers name, never into the gateway's own network
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
