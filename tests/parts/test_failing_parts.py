"""Parts of other packages that fail: one message names the part and what is wrong, and what need not fail with it does not."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.packages import install
from tests.loaded import loaded_toolpost

pytestmark = pytest.mark.wire

PROJECT = """
[project]
name = "toolpost-probe"
version = "1.0.0"
[project.entry-points."toolpost.parts"]
{name} = "toolpost_probe:PART"
"""

MANIFEST = """
from toolpost.parts import Command, Part

PART = Part(name="{name}", opens="toolpost_probe.part:open_probe"{more})
"""

PART = """
from contextlib import asynccontextmanager
from pathlib import Path

from toolpost import Plugin
from toolpost.endpoints.http import JsonApi, Pages, Route
from toolpost.metrics import Counter
from toolpost.parts import Api, Background, ConsoleView, Gauges

plugin = Plugin("probe")


@plugin.tool
def look() -> int:
    '''Look.'''
    return 1


async def handler(request):
    return 1


{before}
@asynccontextmanager
async def open_probe(host):
    {body}
    yield {items}
    {after}
"""

FAILING = """
    from toolpost.store import Statement

    def script():
        yield Statement("SELECT 1 FROM nowhere")

    await host.store.scripts.run(script)
"""
NO_CONTEXT = "async def open_probe(host):\n    return []\n"
BROKEN = "@asynccontextmanager\nasync def broken():\n    raise ValueError('boom')\n    yield\n"


class Probe:
    """An installed part, and the folder of a project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.site = folder / "site"
        self.write()

    def write(
        self,
        *,
        name: str = "probe",
        entry: str = "probe",
        more: str = "",
        manifest: str | None = None,
        part: str | None = None,
        before: str = "",
        body: str = "pass",
        items: str = "[plugin]",
        after: str = "",
        **files: str,
    ) -> None:
        (self.folder / "pyproject.toml").write_text(PROJECT.format(name=entry))
        text = PART.format(before=before, body=body, items=items, after=after) if part is None else part
        texts = {
            "__init__.py": MANIFEST.format(name=name, more=more) if manifest is None else manifest,
            "part.py": text,
        }
        for file, text in (texts | {path.replace("__", "."): text for path, text in files.items()}).items():
            path = self.folder / "src/toolpost_probe" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *arguments: str, settings: str = "") -> "subprocess.CompletedProcess[str]":
        if not self.site.exists():
            install(self.folder)
        (self.project / "toolpost.toml").write_text(settings)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(self.site)}
        return subprocess.run(
            loaded_toolpost(*arguments), cwd=self.project, env=environment, capture_output=True, text=True, timeout=60
        )


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"name": "other"}, "its entry point is named `probe`, and its `Part` `other`: give both one name"),
        ({"name": "bus", "entry": "bus"}, "its name is that of a part of Toolpost"),
        ({"name": "my-probe", "entry": "my-probe"}, "`my-probe` is no name of a part"),
        ({"manifest": "PART = None\n"}, "`toolpost_probe:PART` is None, not a `Part`"),
        ({"manifest": "import nowhere_at_all\n"}, "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ({"manifest": "x = 1\n"}, "`toolpost_probe:PART` does not exist: the module has no `PART`"),
        ({"part": NO_CONTEXT}, "`opens` returned a value of type coroutine, not an asynchronous context manager"),
        ({"items": "None"}, "it yields None, not a list of contributions"),
        ({"items": "plugin"}, "it yields a value of type Plugin, not a list of contributions"),
        ({"body": FAILING}, "could not be opened: no such table: nowhere"),
        ({"body": "raise ValueError('boom')"}, "part `probe` could not be opened: ValueError: boom"),
        ({"more": ", settings='toolpost_probe:X'"}, "`settings` is a value of type str, not a tuple of references"),
        (
            {"body": "host.metrics.add(Counter('toolpost_calls_total', 'x'))"},
            "there is a counter `toolpost_calls_total`",
        ),
    ],
)
def test_a_part_that_cannot_be_loaded_or_opened_is_named_and_the_rest_serves(
    probe: Probe, written: dict[str, str], says: str
) -> None:
    probe.write(**written)
    done = probe.run("tools", "--with", "time")

    assert done.returncode == 1
    assert "time__current_time" in done.stdout
    assert says in done.stderr
    assert f"part `{written.get('entry', 'probe')}` could not be" in done.stderr
    assert "internal error" not in done.stderr


def test_a_reference_without_a_colon_is_explained(probe: Probe) -> None:
    probe.write(manifest="from toolpost.parts import Part\nPART = Part(name='probe', opens='toolpost_probe.part')\n")
    done = probe.run("tools", "--with", "time")

    assert "`toolpost_probe.part` is no reference: write `package.module:attribute`" in done.stderr


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"items": "[42]"}, "the part `probe` contributes a value of type int, which is of no known kind"),
        (
            {"before": BROKEN, "items": "[Background(broken)]"},
            "the part `probe` could not open its background: ValueError: boom",
        ),
        (
            {"items": "[Background(lambda: None)]"},
            "could not open its background: `open` returned None, not an asynchronous",
        ),
        ({"after": "raise ValueError('bye')"}, "the part `probe` could not be closed: ValueError: bye"),
        (
            {"more": ", is_required=lambda config: 1 / 0", "body": "raise ValueError('boom')"},
            "the part `probe` could not be opened, nor its `is_required` be called: ZeroDivisionError",
        ),
        (
            {"more": ", is_required=lambda config: True", "body": "raise ValueError('boom')"},
            "the part `probe` cannot be enforced: ValueError: boom",
        ),
    ],
)
def test_what_ends_the_gateway_is_one_message_that_names_the_part(
    probe: Probe, written: dict[str, str], says: str
) -> None:
    probe.write(**written)
    done = probe.run("tools", "--with", "time")

    assert done.returncode in (1, 3)
    assert says in done.stderr
    assert done.stderr.count("error:") == 1
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ("[Api(lambda http: 1 / 0)]", "the part `probe` failed in `make_routes`: ZeroDivisionError"),
        (
            "[Api(lambda http: [Route(method='GET', path='/api/probe', handler=handler)])]",
            "it returned a value of type Route: put each `Route` into a `JsonApi(http, [Route(…)])`",
        ),
        (
            "[Api(lambda http: JsonApi(http, []))]",
            "it returned a value of type JsonApi, not a list of `JsonApi` and `Pages`",
        ),
        (
            "[Api(lambda http: [JsonApi(http, [Route(method='GET', path='api/probe', handler=handler)])])]",
            "a route is `GET /path`, not `GET api/probe`",
        ),
        (
            "[Api(lambda http: [Pages(http.access, '/probe', host.config_path.parent / 'nowhere', 'it')])]",
            "the folder of the page /probe does not exist:",
        ),
    ],
)
def test_routes_that_cannot_be_made_end_the_gateway_with_one_message(probe: Probe, items: str, says: str) -> None:
    probe.write(items=items)
    done = probe.run("serve", "--listen", "127.0.0.1:0")

    assert done.returncode == 1
    assert "error: the part `probe` failed in `make_routes`: " in done.stderr
    assert says in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("'/probe', Path('away.js')", "has no file for its view /probe"),
        (
            "'/probe', Path(__file__), 'accounts'",
            "has an unknown group for its view /probe: `accounts`: known are observe, tools,",
        ),
    ],
)
def test_a_view_that_cannot_be_shown_ends_the_gateway_with_one_message(probe: Probe, view: str, says: str) -> None:
    probe.write(items=f"[ConsoleView('Probe', {view})]")
    done = probe.run("serve", "--listen", "127.0.0.1:0")

    assert done.returncode == 1
    assert f"error: the part `probe` {says}" in done.stderr


SECTION = """
import msgspec

from toolpost.parts import Section


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    most: int = 1


SECTION = Section(name="{name}", struct=Settings, default=Settings())
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("limits", "its section [limits] is one of Toolpost: give part, entry point and section another name"),
        ("agents", "its section [agents] is one of Toolpost"),
        ("my-probe", "its section is called [my-probe]: it must be [probe], like the part"),
    ],
)
def test_a_section_is_called_like_its_part(probe: Probe, name: str, says: str) -> None:
    probe.write(more=", settings=('toolpost_probe.settings:SECTION',)", settings__py=SECTION.format(name=name))
    done = probe.run("tools", "--with", "time")
    configured = probe.run("tools", settings="[probe]\nmost = 1\n")

    assert says in done.stderr
    assert "time__current_time" in done.stdout
    assert says in configured.stderr
    assert "internal error" not in done.stderr + configured.stderr


def test_the_section_of_a_part_that_is_not_installed_is_explained(probe: Probe) -> None:
    removed, mistyped = (probe.run("tools", settings=f"[{name}]\nmost = 1\n") for name in ("notes", "limmits"))

    assert "toolpost.toml: no installed part has the section `notes`" in removed.stderr
    assert "hint: install the package that brings it, or remove the section" in removed.stderr
    assert "did you mean `limits`?" in mistyped.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("x = 1\n", "cannot be loaded: `toolpost_probe.command:run` does not exist"),
        (
            "def run(): ...\n",
            "cannot be loaded: `toolpost_probe.command:run` is a value of type function, not a click command",
        ),
        ("import click\n\n\n@click.command()\ndef run():\n    raise ValueError('boom')\n", "failed: ValueError: boom"),
    ],
)
def test_a_command_that_fails_is_one_of_the_part(probe: Probe, command: str, says: str) -> None:
    probe.write(more=", commands={'probe': Command('toolpost_probe.command:run', 'Run.')}", command__py=command)
    done = probe.run("probe")

    assert done.returncode == 1
    assert f"error: the command `probe` of the part `probe` {says}" in done.stderr
    assert "internal error" not in done.stderr


DOCTOR = """
from toolpost.parts import PartDoctor
from toolpost.terminal import ok


class Doctor(PartDoctor):
    async def check_setup(self, config):
        {body}
"""


@pytest.mark.parametrize(
    ("doctor", "says"),
    [
        ("from toolpost.parts import ok\n", "its doctor cannot be loaded: ImportError: cannot import name 'ok'"),
        ("x = 1\n", "its doctor cannot be loaded: `toolpost_probe.doctor:Doctor` does not exist"),
        ("class Doctor: ...\n", "not a PartDoctor"),
        (DOCTOR.format(body="raise ValueError('boom')"), "its doctor failed in `check_setup`: ValueError: boom"),
        (DOCTOR.format(body="return None"), "it returned None, not a list of Diagnosis"),
        (DOCTOR.format(body="return ok('a', 'b')"), "it returned a value of type Diagnosis, not a list of Diagnosis"),
        (DOCTOR.format(body="return ['fine']"), "it returned a value of type str, not a list of Diagnosis"),
    ],
)
def test_a_doctor_that_fails_is_a_finding_and_the_others_run(probe: Probe, doctor: str, says: str) -> None:
    probe.write(more=", doctor='toolpost_probe.doctor:Doctor'", doctor__py=doctor)
    done = probe.run("doctor")

    assert done.returncode == 1
    assert "the part `probe`: " in done.stdout
    assert says in done.stdout
    assert "Python 3" in done.stdout
    assert "internal error" not in done.stdout + done.stderr


def test_a_command_that_toolpost_has_is_left_out_and_found(probe: Probe) -> None:
    probe.write(more=", commands={'serve': Command('toolpost_probe.part:run', 'Run.')}")
    assert "its command `serve` is left out, because Toolpost has one of this name" in probe.run("doctor").stdout


TABLE = "CREATE TABLE probe_a (id INTEGER PRIMARY KEY);\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "its migrations `toolpost_probe.migrations` are not a package"),
        ({"migrations/postgres/0001_a.sql": TABLE}, "have no folder `sqlite`, for this kind of store"),
        ({"migrations/sqlite/notes.sql": TABLE}, "`notes.sql` is no name of a migration: write `0001_name.sql`"),
        (
            {"migrations/sqlite/0001_a.sql": TABLE, "migrations/sqlite/0001_b.sql": TABLE},
            "`0001_a.sql` and `0001_b.sql` have one number",
        ),
        (
            {"migrations/sqlite/0001_a.sql": TABLE, "migrations/sqlite/0002_b.sql": "CREATE TABEL probe_b (id);\n"},
            'its migration `0002_b.sql` failed: near "TABEL": syntax error',
        ),
    ],
)
def test_migrations_that_cannot_be_applied_are_explained(probe: Probe, files: dict[str, str], says: str) -> None:
    probe.write(more=", migrations='toolpost_probe.migrations'", **files)
    done = probe.run("tools", "--with", "time")

    assert done.returncode == 1
    assert "part `probe` could not be opened: " in done.stderr
    assert says in done.stderr
    assert "time__current_time" in done.stdout


def test_a_released_migration_that_changed_is_a_finding(probe: Probe) -> None:
    probe.write(more=", migrations='toolpost_probe.migrations'", **{"migrations/sqlite/0001_a.sql": TABLE})
    assert probe.run("call", "probe__look").returncode == 0
    (probe.site / "toolpost_probe/migrations/sqlite/0001_a.sql").write_text(TABLE.replace("id", "number"))
    done = probe.run("doctor")

    assert done.returncode == 1
    assert "the part `probe`: its tables cannot be used: its tables were made by another migration 1 (a)" in done.stdout
