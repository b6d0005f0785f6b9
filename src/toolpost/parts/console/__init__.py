"""The web console at `/`: servers, tools and calls of the gateway, its state, and actions.

part      the console as a part of a gateway; `settings` has its section
sessions  who may change anything from a browser where no token is required: one-time secrets, cookies
people    the sessions of people who are signed in
sign_in   how they come to be, at an OpenID Connect provider
figures   calls, failures and durations of the last hour, beside the hour before
log_view  the log, as far as a caller may see it
gateways  which gateway wrote a call, where several share a store
timings   how long each step of the latest calls took
memory    the memory of servers over the last hour
context   what the API's handlers share
api       the JSON API below `/api/console`, a module for each page
changes   changes of `toolpost.toml`, shown as a `diff` first
definitions  how the definition of each tool has changed
gateway_id   what tells the gateways of one project from others of the same store
command   `toolpost console`
pages     the frame, what all views share (`kit.js`), and the console's own views: ES modules over
          preact and htm, without a build step
"""

from toolpost.parts import Command, Part

PART = Part(
    name="console",
    summary="The web console: servers, tools, contracts and calls.",
    opens="toolpost.parts.console.part:open_console",
    settings=("toolpost.parts.console.settings:CONSOLE",),
    migrations="toolpost.parts.console.migrations",
    commands={
        "console": Command(
            "toolpost.parts.console.command:console", "Open the web console in a browser.", heading="Operate"
        )
    },
)
