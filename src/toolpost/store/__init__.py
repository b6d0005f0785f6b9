"""Everything that a gateway stores, in SQLite or PostgreSQL.

base           Store, and open_store, which chooses the kind by URL
scripts        transactions as generators, written once for both databases
urls           parses the URL of a store, and removes its password for display
clock          the time that all processes of a store share, without jumps
wakeups        wakes listeners in every process after a commit
migrate        migrations/KIND/*.sql: which there are, which are missing
part_migrations  the same for tables of parts, and which there are
adoption       stores from before each part had its own tables

audit          AuditLog: appends, finds and verifies entries (what else is done with them is in `toolpost.audit`, above)
audit_values   an entry, a record, a filter, a verdict
audit_contents  contents of calls that were selected for review
chain          the hash chain over the records; no I/O
segments       seals of records that were removed
batches        collects audit entries while others are written
call_journal   calls in flight, which are known after a kill
late_entries   audit entries whose commit failed, written once there is room

callers        callers that were made while a gateway runs, with hashes of their tokens
credentials    encrypted credentials for servers, and who renews them
keys           secrets that the gateways of one store share
known_tools    the tools of each server, as they were first (pins) and last listed
seen           which definitions each session has been sent
key_values     small values of plugins, for each caller
verdicts       verdicts about the definitions of each server

tables         the kernel's tables, for copying
rows           rows read and written whole
copying        one store copied into another, of either kind

sqlite/store          SqliteStore: one file
sqlite/scripts        runs scripts, those that read on connections of their own
sqlite/group_commit   the writer: commits queued scripts as one group
sqlite/transactions   groups of scripts as transactions on one connection
sqlite/sync           syncs the write-ahead log after a commit
sqlite/journal        acknowledges audit entries that come alone before their commit
sqlite/connection     how a file is opened and migrated, and what its errors mean
sqlite/wakeups        wake-ups through a file that each process polls

postgres/store        PostgresStore: a schema of a database, shared by several gateways
postgres/scripts      runs scripts
postgres/audit        batches of audit entries, each in one statement
postgres/connection   opens connections, escapes texts, retries transient errors, explains the others
postgres/wakeups      wake-ups through LISTEN and NOTIFY

CONTRIBUTING.md says how a table is added.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
