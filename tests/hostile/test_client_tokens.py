"""Access tokens that name a client and no subject: they must not come in as somebody."""

from pathlib import Path

import pytest

from tests.hostile.attacks import attack
from tests.ways import STATELESS
from tests.wire.authorization_server import open_authorization_server
from tests.wire.callers import client_of
from tests.wire.test_oauth import RESOURCE, Project, ask, served
from toolpost.audit import AuditFilter

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

CALLERS = """
[callers.ada]
subjects = ["ada"]
admin = true
[callers.agents]
clients = ["agent-7"]
"""


@attack(
    "stranger",
    "registers an OAuth client whose id is the `sub` of an administrator, and shows a token without `sub`",
    "`client_id` and `azp` never match `subjects`; the token is refused with 403, and no caller shares its id",
)
async def test_a_client_never_passes_for_a_subject(tmp_path: Path) -> None:
    with open_authorization_server() as issuer:
        project = Project(tmp_path, issuer)
        told = {
            "client_id": issuer.token(RESOURCE, sub=None, client_id="ada"),
            "azp": issuer.token(RESOURCE, sub=None, azp="ada"),
            "an empty subject": issuer.token(RESOURCE, sub="", client_id="ada"),
            "a subject that looks like a client's id": issuer.token(RESOURCE, sub=":agent-7", client_id="agent-7"),
        }
        async with served(project.load(CALLERS)) as (app, url):
            answers = {kind: (await ask(url, token))[0] for kind, token in told.items()}
            for client_id, sub in (("agent-7", None), ("agent-7", "agent-7")):
                token = issuer.token(RESOURCE, sub=sub, client_id=client_id)
                async with client_of(url, token, STATELESS) as client:
                    await client.call_tool("does__echo", {"text": "x"})
            entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert answers == {
        "client_id": 403,
        "azp": 403,
        "an empty subject": 401,
        "a subject that looks like a client's id": 401,
    }
    assert {record.entry.caller for record in entries} == {"agents::agent-7", "agents:agent-7"}
