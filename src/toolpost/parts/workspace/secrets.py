"""Which files contain secrets, by name or by a private key at the start. Credentials in all other files are masked when shown.

Callers check both the requested and the resolved name of a file, so a symbolic link does not bypass this. A hard link does:
it is a second name, and the file system does not tell which was the first.
"""

import itertools
import re
import unicodedata
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

from toolpost.base import STATE_FOLDER, normalize
from toolpost.parts.workspace.languages import Language, language_of
from toolpost.parts.workspace.masking import Style

HIDDEN: Final = frozenset({".git", ".hg", ".svn", STATE_FOLDER})
"""Folders that are never shown, whatever is allowed: they contain history, credentials and the store of Toolpost."""

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
"""Pairs of a folder and a file or folder in it."""
_ENVIRONMENT: Final = re.compile(r"\.env[.\-_].+|.+\.env")
_SAMPLE: Final = re.compile(r".*[.\-_](?:example|sample|template|dist|defaults?|schema|tmpl|md)")

_KEY_HEAD: Final = re.compile(
    rb"^(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----\s*$|PuTTY-User-Key-File-\d:|AGE-SECRET-KEY-1)",
    re.MULTILINE,
)
_HEAD_BYTES: Final = 4_096
_CONFIG_LANGUAGES: Final = frozenset({"data", "shell"})


def is_hidden(path: str) -> bool:
    """Whether a path leads into a hidden folder, in any spelling that some file system would accept."""
    return not HIDDEN.isdisjoint(map(_fold_name, path.split("/")))


@lru_cache(maxsize=4096)
def _fold_name(name: str) -> str:
    """Fold a name as the most lenient file system does: without case, invisible characters, NTFS streams and trailing dots."""
    if name.isascii():
        return name.lower().partition(":")[0].rstrip(" .")
    folded = normalize("NFKC", name).casefold()
    visible = "".join(character for character in folded if unicodedata.category(character) != "Cf")
    return visible.partition(":")[0].rstrip(" .")


def may_hold_secrets(path: str) -> bool:
    """Whether files with this name usually contain secrets."""
    folder, _, last = path.rpartition("/")
    name = _fold_name(last)
    parent, is_secret = _classify_folder(folder)
    if is_secret or (parent, name) in _IN_FOLDER or name in _NAMES:
        return True
    stem, dot, suffix = name.rpartition(".")
    if stem and f"{dot}{suffix}" in _SUFFIXES:
        return True
    return ".env" in name and bool(_ENVIRONMENT.fullmatch(name)) and not _SAMPLE.fullmatch(name)


@lru_cache(maxsize=4096)
def _classify_folder(folder: str) -> tuple[str, bool]:
    """Return the last part of a folder's path, and whether everything in it counts as secret."""
    parts = [_fold_name(part) for part in folder.split("/")]
    is_secret = not _FOLDERS.isdisjoint(parts) or any(pair in _IN_FOLDER for pair in itertools.pairwise(parts))
    return parts[-1], is_secret


def is_private_key(head: bytes, path: str) -> bool:
    """Whether a file starts with a private key. Source code and documents may quote one: there it is only masked."""
    language = language_of(path)
    if language is not None and language.name not in ("data", "text"):
        return False
    return _KEY_HEAD.search(head[:_HEAD_BYTES].replace(b"\0", b"")) is not None


def style_of(path: str, language: Language) -> Style:
    """Return how credentials are recognized in a file: as in configuration, prose or code."""
    if language.name in _CONFIG_LANGUAGES or _fold_name(PurePosixPath(path).name).startswith(".env"):
        return "config"
    return "prose" if language.family == "prose" else "code"
