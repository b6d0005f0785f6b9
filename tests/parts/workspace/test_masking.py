"""A labelled corpus: lines that hold a credential, and lines of ordinary code that look like it. No key here was ever valid."""

import re

import pytest

from tests.hostile.attacks import assert_linear, slowness, thread_cpu_s
from toolpost.base.redaction import REDACTED
from toolpost.parts.workspace.masking import Masker, Style, mask

R = "9f8Kq2mZ7xLw4Tb1Vc6Ns3Yd"
"""What a key looks like after its prefix."""
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"

# Style, line, and what of it must not be seen.
CREDENTIALS: list[tuple[Style, str, str]] = [
    ("code", f'client = boto3.client("s3", "AKIA{"QX7" * 5}Z")', "AKIA" + "QX7" * 5 + "Z"),
    ("code", f"headers = {{'Authorization': 'token ghp_{R}'}}", f"ghp_{R}"),
    ("prose", f"Use github_pat_{R}_{R} for this.", f"github_pat_{R}_{R}"),
    ("code", f'slack("xoxb-123456789012-{R}")', R),
    ("code", f'maps = "AIza{R}{R}"', R),
    ("code", f'openai.api_key = "sk-proj-{R}"', R),
    ("code", f"anthropic('sk-ant-api03-{R}{R}')", R),
    ("code", f'stripe("sk_live_{R}")', R),
    ("config", f"//registry.npmjs.org/:_authToken=npm_{R}{R}", R),
    ("code", f'jwt = "{JWT}"', JWT),
    ("prose", f"curl -H 'Authorization: Bearer {R}' https://api.example.org", R),
    ("prose", f"Authorization: Basic {R}==", R),
    ("code", 'password = "hunter2!"', "hunter2!"),
    ("code", 'password: str = "correct-horse"', "correct-horse"),
    ("code", 'String dbPassword = "letmein99";', "letmein99"),
    ("code", "let pwd = `sesame-open`;", "sesame-open"),
    ("code", "const PASSWD string = 'swordfish'", "swordfish"),
    ("code", f'API_TOKEN = "{R}"', R),
    ("code", f'self.client_secret = b"{R}"', R),
    ("code", f'"private_key": "{R}"', R),
    ("code", f":secret_key_base => '{R}'", R),
    ("code", f"define('AUTH_KEY_SECRET', '{R}');", R),
    ("code", f'os.environ.get("GITHUB_TOKEN", "{R}")', R),
    ("code", 'PASSWORD = "unterminated9', "unterminated9"),
    ("code", r'password = "with\"quote7"', r"with\"quote7"),
    ("code", "db = 'postgresql://shop:Tr0ub4dor@db.internal:5432/shop'", "Tr0ub4dor"),
    ("code", '"Server=db;User Id=sa;Password=Str0ngP4ss;"', "Str0ngP4ss"),
    ("code", f'"https://api.example.org/v1?access_token={R}&page=2"', R),
    ("config", "password: hunter2", "hunter2"),
    ("config", "DB_PASSWORD=swordfish", "swordfish"),
    ("config", f"aws_secret_access_key = {R}", R),
    ("config", f"x-api-key: {R}", R),
    ("config", "spring.datasource.password=geheim42", "geheim42"),
    ("config", f"docker login --password {R}", R),
    ("config", "<password>geheim42</password>", "geheim42"),
    ("prose", f"Then set TOKEN={R} and start it.", R),
    ("config", f'export SESSION_SECRET="{R}"', R),
]

ORDINARY: list[tuple[Style, str]] = [
    ("code", "token = get_token()"),
    ("code", "password: str"),
    ("code", "password: string;"),
    ("code", "def login(user: str, password: str | None = None) -> Token:"),
    ("code", "const token = await auth.token2(request);"),
    ("code", 'token = os.environ["GITHUB_TOKEN"]'),
    ("code", 'secret = f"{prefix}-{number}"'),
    ("code", 'password = getpass("Password: ")'),
    ("code", 'password = ""'),
    ("code", 'PASSWORD = "PASSWORD"'),
    ("code", 'token_url = "https://login.example.org/oauth2/token"'),
    ("code", 'TOKEN_TYPE = "access_token_v2"'),
    ("code", 'auth = "basic"'),
    ("code", 'auth_header = "X-Auth-Token-2"'),
    ("code", 'next_page_token = "page-2"'),
    ("code", 'secret_name = "projects/1/secrets/db"'),
    ("code", 'password_field = "user_password1"'),
    ("code", '"token": "next-page-token"'),
    ("code", '{"type": "password", "label": "Enter your password"}'),
    ("code", 'password = "${DB_PASSWORD}"'),
    ("code", 'password = "<your password here>"'),
    ("code", 'api_key = "YOUR_API_KEY"'),
    ("code", 'api_key = "xxxxxxxxxxxxxxxx"'),
    ("code", 'key = "9f8Kq2mZ7xLw4Tb1Vc6Ns3Yd"'),
    ("code", 'sha = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"'),
    ("code", "max_tokens = 4096"),
    ("code", 'tokens = text.split("-----BEGIN ")'),
    ("code", "if token == TOKEN_END2:"),
    ("code", 'assert is_secret_name("api_key")'),
    ("code", ".sk-fading-circle-of-many-dots { color: red; }"),
    ("code", "url = 'https://user:password@localhost/'"),
    ("code", "for (token=first; token!=last1; token=next1) {}"),
    ("config", "password: ${DB_PASSWORD}"),
    ("config", "password: null"),
    ("config", "token: str"),
    ("config", "secret: my-secret"),
    ("config", "auth: basic"),
    ("config", "TOKEN=$(cat /run/token)"),
    ("config", "password_file: /run/secrets/db"),
    ("config", "secretName: shop-tls-2"),
    ("config", '"integrity": "sha512-9f8Kq2mZ7xLw4Tb1Vc6Ns3Yd=="'),
    ("prose", "The token: a string of letters, as in OAuth2."),
    ("prose", "Password: at least eight characters"),
    ("prose", "Bearer authentication-is-used throughout."),
    ("prose", "See https://example.org/docs/tokens#section-1 for more."),
]


@pytest.mark.parametrize(("style", "line", "secret"), CREDENTIALS)
def test_what_looks_like_a_credential_is_masked(style: Style, line: str, secret: str) -> None:
    masked = mask(line, style)

    assert secret not in masked
    assert REDACTED in masked
    assert mask(masked, style) == masked, "what is masked stays as it is"
    assert mask(f"a\n{line}\nb", style) == f"a\n{masked}\nb"


@pytest.mark.parametrize(("style", "line"), ORDINARY)
def test_ordinary_lines_are_left_alone(style: Style, line: str) -> None:
    assert mask(line, style) is line


KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{R * 2}\n{R * 2}\nabcd==\n-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        "\n".join(f"    {line}" for line in KEY.split("\n")),
        "\n".join(f'    "{line}\\n"' for line in KEY.split("\n")),
        "\n".join(f"# {line}" for line in KEY.split("\n")),
        '"private_key": "' + KEY.replace("\n", "\\n") + '",',
        KEY.replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n", 1),
        KEY.rsplit("\n", 1)[0],
    ],
    ids=["plain", "indented", "strings", "comments", "one line", "encrypted", "without an end"],
)
def test_private_keys_are_masked_and_lines_stay_where_they_are(text: str) -> None:
    whole = f"before = 1\n{text}\nafter = 2"
    masked = mask(whole, "code")
    masker = Masker("code")
    lines = whole.split("\n")
    for line in lines[:2]:
        masker.pass_by(line)

    assert R not in masked
    assert "abcd==" not in masked
    assert (masked.split("\n")[0], masked.split("\n")[-1]) == ("before = 1", "after = 2")
    assert masked.count("\n") == whole.count("\n")
    assert "BEGIN OPENSSH PRIVATE KEY" in masked
    assert all(R not in masker.line(line) for line in lines[2:]), "a part that begins within a key is masked too"


def test_long_lines_are_masked_wherever_the_credential_stands() -> None:
    for filler in ('{"name":"value"},', "word ", "x"):
        for offset in range(32_700, 32_840, 23):
            start = (filler * 40_000)[:offset]
            line = f'{start},"password":"Tr0ub4dor",' + (filler * 40_000)[:80_000]

            assert "Tr0ub4dor" not in mask(line, "config")


ATTACKS = {
    "names": "password" + "_password",
    "quotes": 'password="',
    "jwt": "eyJabcdefgh-",
    "jwt parts": "eyJabcdefgh.",
    "keys": "sk-",
    "urls": "a://b:c",
    "colons": "token: [",
    "annotations": "token: a b ",
    "dots": "SG.abcdefghijklmnop.",
    "begins": "-----BEGIN ",
    "spaces": "password =        ",
    "escapes": 'password="\\\\',
    "elements": "<password>",
    "flags": "--password ",
    "lower case": "İtoken=",
}


@pytest.mark.parametrize("unit", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("is_one_line", [True, False])
def test_time_is_linear_in_the_text(unit: str, *, is_one_line: bool) -> None:
    text = unit if is_one_line else f"{unit * 8}\n"

    assert_linear(lambda size: thread_cpu_s(lambda: mask(text * (size // len(text)), "config")), small=8_000)


def test_no_piece_holds_other_threads_up() -> None:
    """The engine lets no other thread run while it matches; pieces are short whatever the text is."""
    longest = max(
        thread_cpu_s(lambda text=text: Masker("config").lines(text))  # type: ignore[misc]
        for text in (unit * (32_768 // len(unit)) for unit in ATTACKS.values())
    )

    assert longest < 0.05 * slowness()


def test_nothing_is_masked_twice_or_moved() -> None:
    text = "\n".join(line for _, line, _ in CREDENTIALS)
    masked = mask(text, "config")

    assert masked.count("\n") == text.count("\n")
    assert not re.search(r"\(redacted\)\S*\(redacted\)", masked)
