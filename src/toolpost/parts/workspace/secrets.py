"""Files that hold secrets, told by their names or by the private key they begin with; and credentials in all others, masked.

A file is judged by the name that was asked for and by the one that it really has, so a link to it is no way around. A hard link
is: it is a second name, and nothing tells which was the first.
"""

import itertools
import re
import unicodedata
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

from toolpost.base.credentials import Style
from toolpost.base.own_folder import OWN_FOLDER
from toolpost.parts.workspace.languages import Language, language_of

HIDDEN: Final = frozenset({".git", ".hg", ".svn", OWN_FOLDER})
"""Folders that nobody gets to see into, whatever is allowed: they hold history, credentials and our own store."""

_FOLDERS: Final = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
_NAMES: Final = frozenset(
    {
        # What Toolpost and MCP clients are configured with: servers, with their tokens.
        *("toolpost.toml", ".mcp.json", "mcp.json", "mcp_config.json", "mcp_settings.json", "cline_mcp_settings.json"),
        *("claude_desktop_config.json", ".claude.json", ".credentials.json"),
        # Environments.
        *(".env", ".envrc", ".flaskenv", ".dev.vars"),
        # Credential stores of tools.
        *(
            ".netrc",
            "_netrc",
            ".pgpass",
            "pgpass.conf",
            ".my.cnf",
            ".npmrc",
            ".yarnrc.yml",
            ".pypirc",
            ".git-credentials",
        ),
        *(
            ".dockercfg",
            ".dockerconfigjson",
            ".htpasswd",
            ".vault-token",
            ".boto",
            ".s3cfg",
            ".terraformrc",
            "terraform.rc",
        ),
        *("terraform.tfstate", "credentials.tfrc.json", "kubeconfig", "application_default_credentials.json"),
        *("access_tokens.db", "credentials.db", "accesstokens.json", "msal_token_cache.json", "client_secret.json"),
        *("service-account.json", "service_account.json", "serviceaccount.json", "secrets.yml", "secrets.yaml"),
        *("secrets.json", "secrets.toml", "credentials.json", "credentials.toml", "master.key", "credentials.yml.enc"),
        *("key4.db", "logins.json", "login data", "wallet.dat", ".bash_history", ".zsh_history"),
        # Private keys.
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"),
    }
)
_SUFFIXES: Final = frozenset(
    {
        *(".pem", ".key", ".p8", ".p12", ".pfx", ".pkcs12", ".jks", ".keystore", ".bcfks", ".ppk", ".kdbx", ".kdb"),
        *(".keychain", ".keychain-db", ".ovpn", ".tfstate", ".agekey", ".gpg-key", ".secret", ".secrets"),
    }
)
_IN_FOLDER: Final = frozenset(
    {
        *((".docker", "config.json"), (".codex", "config.toml"), (".codex", "auth.json"), (".gemini", "settings.json")),
        *((".gemini", "oauth_creds.json"), (".config", "gcloud"), (".config", "gh"), (".cargo", "credentials")),
        *((".gem", "credentials"), (".composer", "auth.json"), (".continue", "config.json"), (".vscode", "mcp.json")),
        *(
            ("library", "keychains"),
            (".cursor", "mcp.json"),
            (".config", "rclone"),
            (".m2", "settings.xml"),
            (".gradle", "gradle.properties"),
        ),
    }
)
"""A folder and a file or folder in it."""
_ENVIRONMENT: Final = re.compile(r"\.env[.\-_].+|.+\.env")
_SAMPLE: Final = re.compile(r".*[.\-_](?:example|sample|template|dist|defaults?|schema|tmpl|md)")

_KEY_HEAD: Final = re.compile(
    rb"^(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----\s*$|PuTTY-User-Key-File-\d:|AGE-SECRET-KEY-1)",
    re.MULTILINE,
)
_HEAD_BYTES: Final = 4_096
_CONFIG_LANGUAGES: Final = frozenset({"data", "shell"})


def is_hidden(path: str) -> bool:
    """Say whether a path leads into a folder that is kept from view, in whatever case it is written."""
    return not HIDDEN.isdisjoint(map(_plain, path.split("/")))


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """Return a name as the most lenient file system reads it: without case, and without what some of them ignore."""
    if name.isascii():
        return name.lower().partition(":")[0].rstrip(" .")
    folded = unicodedata.normalize("NFKC", name).casefold()
    shown = "".join(character for character in folded if unicodedata.category(character) != "Cf")
    return shown.partition(":")[0].rstrip(" .")


def holds_secrets(path: str) -> bool:
    """Say whether a file of this name is one that holds secrets."""
    folder, _, last = path.rpartition("/")
    name = _plain(last)
    parent, is_secret = _judge_folder(folder)
    if is_secret or (parent, name) in _IN_FOLDER or name in _NAMES:
        return True
    stem, dot, suffix = name.rpartition(".")
    if stem and f"{dot}{suffix}" in _SUFFIXES:
        return True
    return ".env" in name and bool(_ENVIRONMENT.fullmatch(name)) and not _SAMPLE.fullmatch(name)


@lru_cache(maxsize=4096)
def _judge_folder(folder: str) -> tuple[str, bool]:
    """Return the last part of a folder, and whether all that is in it counts as secret."""
    parts = [_plain(part) for part in folder.split("/")]
    is_secret = not _FOLDERS.isdisjoint(parts) or any(pair in _IN_FOLDER for pair in itertools.pairwise(parts))
    return parts[-1], is_secret


def is_private_key(head: bytes, path: str) -> bool:
    """Tell a private key by its first bytes, unless it is a program or a document with one in it: there it is masked."""
    language = language_of(path)
    if language is not None and language.name not in ("data", "text"):
        return False
    return _KEY_HEAD.search(head[:_HEAD_BYTES].replace(b"\0", b"")) is not None


def style_of(path: str, language: Language) -> Style:
    """Say what the unquoted words of a file are."""
    if language.name in _CONFIG_LANGUAGES or _plain(PurePosixPath(path).name).startswith(".env"):
        return "config"
    return "prose" if language.family == "prose" else "code"
