"""The record of calls after it is written: verification, retention, exports.

spec           a destination and the limits of retention, as configured, with secrets
upkeep         runs exports and retention while a gateway serves
exporter       delivers the records to a destination, at least once each, and remembers how far it came
destinations   a file, a signed webhook, OTLP logs
retention      seals and removes the oldest records
file           records as JSON lines; a file that is appended to
archive        the records of a sealed segment as a file
failures       servers and tools whose calls fail
verification   the verdict on a store, and on the archives of what was removed
sqlite_file    verifies the audit in a SQLite file without changing it

The log itself is in `store`, below this package, because it is written in the transactions of the store. There `audit.py`
appends, finds and verifies, `audit_values.py` has the entry, `chain.py` the hash chain, `segments.py` the seals of removed
records, and `batches.py`, `call_journal.py` and `late_entries.py` the calls that are not in the log yet.

`__init__.pyi` lists the public names of both, looked up when they are first used.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
