"""What a gateway keeps, in SQLite or PostgreSQL.

base           Store, and open_store, which chooses the kind by URL
scripts        transactions as generators, written once for both databases
urls           what a URL names, and how it may be shown
clock          the time that all processes of a store share, without jumps
wakeups        waiters are told when something was committed, in any process
migrate        migrations/KIND/*.sql: which there are, which are missing
part_migrations  the same for tables of parts, under their names

audit          AuditLog: entries are appended, found and verified
audit_values   an entry, a record, a filter, a verdict
chain          the hash chain over the records; no I/O
batches        audit entries gathered while others are written
keys           secrets that the gateways of one store share
known_tools    the tools of each server, as they were last seen
pins           the tools of each server, as they were first seen
seen           which definitions each session has been sent
threads        conversations: threads, messages, turns
key_values     small values of plugins, for each caller

tables         every table, for copying
rows           rows read and written whole
copying        one store copied into another, of either kind

sqlite/store          SqliteStore: one file
sqlite/scripts        runs scripts
sqlite/group_commit   the writer: what is queued, committed as one group
sqlite/transactions   groups of scripts as transactions on one connection
sqlite/sync           the write-ahead log put on the disk after a commit
sqlite/journal        audit entries that come alone, acknowledged before their commit
sqlite/readers        connections that read
sqlite/connection     how a file is opened, and what its errors mean
sqlite/migrate        applies migrations
sqlite/wakeups        wake-ups through a file that each process watches
sqlite/verify         the audit of a file, verified without touching it

postgres/store        PostgresStore: a schema of a database, shared by several gateways
postgres/scripts      runs scripts
postgres/audit        batches of audit entries, each in one statement
postgres/connection   how a server is reached, what its errors mean, how long a lost one is waited for
postgres/link         one connection, opened again when it was lost
postgres/migrate      applies migrations, under a lock
postgres/text         texts that PostgreSQL cannot hold
postgres/wakeups      wake-ups through LISTEN and NOTIFY

CONTRIBUTING.md says how a table is added.
"""

from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import AuditEntry, AuditFilter, AuditRecord, AuditVerdict, Outcome
from toolpost.store.base import Store, StoreFacts, open_store, store_exists, verify_audit
from toolpost.store.known_tools import KnownTools
from toolpost.store.pins import Pins
from toolpost.store.seen import SeenTools
from toolpost.store.threads import Ending, Message, Resumable, Thread, Threads, Turn
from toolpost.store.wakeups import Wake, Wakeups

__all__ = [
    "AuditEntry",
    "AuditFilter",
    "AuditLog",
    "AuditRecord",
    "AuditVerdict",
    "Ending",
    "KnownTools",
    "Message",
    "Outcome",
    "Pins",
    "Resumable",
    "SeenTools",
    "Store",
    "StoreFacts",
    "Thread",
    "Threads",
    "Turn",
    "Wake",
    "Wakeups",
    "open_store",
    "store_exists",
    "verify_audit",
]
