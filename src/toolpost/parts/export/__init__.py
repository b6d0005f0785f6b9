"""Passes the audit on to other systems, and removes what is older than wanted.

settings      `[export.NAME]` and `[retention]`
destinations  a file, a signed webhook, OTLP logs
exporter      delivers the records, at least once each, and remembers how far it came
retention     seals and removes the oldest records
part          what the gateway opens
"""
