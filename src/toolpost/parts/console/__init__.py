"""The web console at `/`: what the gateway serves and how it fares, and what can be done about it.

part      the console as a part of a gateway; `settings` has its section
sessions  who may change anything from a browser where no token is required: one-time secrets, cookies
timings   how long each step of the latest calls took
context   what the API's handlers share
api       the JSON API below `/api/console`, a module for each page
toml      changes of `toolpost.toml`, shown as a diff first
command   `toolpost console`
pages     the page: ES modules over preact and htm, without a build step
"""
