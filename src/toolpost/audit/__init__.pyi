from toolpost.store.audit import record_entries as record_entries
from toolpost.store.audit_values import AuditEntry as AuditEntry
from toolpost.store.audit_values import AuditFilter as AuditFilter
from toolpost.store.audit_values import AuditRecord as AuditRecord
from toolpost.store.audit_values import Outcome as Outcome
