"""What a person types. Only what `--help` needs is loaded at once; a command's module comes when it is asked for.

main         the `toolpost` command: a table of sub-commands
group        a group that loads late, and names the nearest command for a miss
failures     what a failure looks like on stderr
exits        what the process ends with
leaving      the end of the process

serve, tools, call, chat, servers, doctor, workspace, audit, config, import_servers, install, completion: the commands

options      the options that commands share, and the configuration they make
in_process   the gateway inside this process, for one command
servers_client, servers_view   the running gateway asked, and its servers on the screen
chat_loop, chat_view, chat_client, chat_gateway, chat_here: a chat as it is led and seen, and the gateway that it goes through
doctor_findings, doctor_setup, doctor_servers, doctor_tools, doctor_view: what is checked, and how it is told
clients      the MCP clients that are known, and where they keep their servers
takeover     a client's server as one of ours
server_toml  servers as text of `toolpost.toml`
safe_files   other people's files, changed with care
arguments    `key=value` and JSON as a tool's arguments
call_progress, definition, audit_view, workspace_view, show: what is put on the screen
moments      points in time as people write them
signals      Ctrl-C and SIGTERM
logs         events on stderr, as text or as JSON lines
reference    the reference page in the docs
"""

from toolpost.cli.main import main

__all__ = ["main"]
