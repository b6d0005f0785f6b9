"""What is remembered, one room per tenant.

base               Store (protocol), open_store: the front door, chooses by URL
audit              what a call leaves on the record, and how it is asked for
chain              the hash chain that makes the record evidence; no I/O
known_tools        the tools of each server, as they were last seen
seen               what each session has been sent of the tools

sqlite             SqliteStore: one file, one writer, a few readers
sqlite_audit       the audit's room in it
sqlite_known_tools the room of the last definitions
sqlite_seen        the room of what each session has been sent
sqlite_connection  how a database file is opened, and what its errors mean
sqlite_readers     reading, on connections of its own
group_commit       the writer thread: everything that waits, in one transaction
notes              entries that came alone, written down until they are committed
migrate            migrations/*.sql, forward-only, run at open
"""

from toolpost.store.audit import AuditEntry, AuditFilter, AuditLog, AuditRecord, AuditVerdict, Outcome
from toolpost.store.base import Store, open_store
from toolpost.store.known_tools import KnownTools
from toolpost.store.seen import SeenTools

__all__ = [
    "AuditEntry",
    "AuditFilter",
    "AuditLog",
    "AuditRecord",
    "AuditVerdict",
    "KnownTools",
    "Outcome",
    "SeenTools",
    "Store",
    "open_store",
]
