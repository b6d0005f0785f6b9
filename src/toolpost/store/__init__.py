"""What is remembered, one room per tenant.

base                  Store (protocol), open_store: the front door, chooses by URL
urls                  what a URL names, and how it may be shown
audit                 what a call leaves on the record, and how it is asked for
chain                 the hash chain that makes the record evidence; no I/O
keys                  secrets that gateways of one store share
known_tools           the tools of each server, as they were last seen
pins                  the tools of each server, as they were first seen
seen                  what each session has been sent of the tools
threads               conversations: threads, messages, turns (`threads_sql` has their statements, `kept_threads` runs them)
wakeups               who waits for something to happen in the store is told
scripts               transactions written once for both kinds (`sqlite_scripts` and `postgres_scripts` run them)
clock                 the time that all who share a store go by, without jumps
tables                every table, for copying
copying               one store copied into another, of any kind
migrate               migrations/KIND/*.sql: which there are, which are missing

sqlite                SqliteStore: one file, one writer, a few readers
sqlite_ROOM           a room in it: audit, keys, known_tools, pins, seen, wakeups, tables
sqlite_connection     how a database file is opened, and what its errors mean
sqlite_verify         the audit of a file, verified without touching it
sqlite_readers        reading, on connections of its own
sqlite_migrate        migrations, applied at open
group_commit          the writer: everything that waits, in one transaction
transactions          groups of jobs as transactions on one connection
syncing               a group that is committed, on its way to the disk
disk                  the write-ahead log put on the disk, by a thread or (`kernel_disk`) without one
notes                 entries that came alone, written down until they are committed

postgres              PostgresStore: a schema of a database, shared by several gateways
postgres_ROOM         a room in it: audit, keys, known_tools, pins, seen, wakeups, tables
postgres_connection   how a server is reached, what its errors mean, how long a lost one is waited for
postgres_link         one connection of its own, opened again when it was lost
postgres_groups       what waits, written group by group
postgres_migrate      migrations, applied at open under a lock
postgres_text         texts that PostgreSQL cannot hold

A room is made for both stores at once; CONTRIBUTING.md says how.
"""

from toolpost.store.audit import AuditEntry, AuditFilter, AuditLog, AuditRecord, AuditVerdict, Outcome
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
