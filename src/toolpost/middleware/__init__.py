"""The steps that every call passes, outermost first: audit, deadline, users' middleware, guards, tool-lock; then the checks
(schema-validate, guards again, audit-enter); then dispatch. The audit writes its entry on the way out. Middleware and guards that
cannot apply to a tool are left out of its calls.

A *step* wraps the rest of the chain, as middleware does in ASGI. A *check* only looks at the call: it raises, returns None,
or returns an awaitable in the rare case that it has to wait. Checks cost no coroutine of their own, which is why validation
and audit-enter are not steps. Each step is a module; the gateway makes the answer.

pipeline       the order of the steps, and the chain of each tool
interface      the types of steps, checks and guards
call           a call in progress
audit, deadline, user, tool_lock, validate, dispatch  the steps and checks, in this order
passthrough    a server's own result: checked and passed on unchanged
custom_result  a result that a function made itself
progress       progress notifications, limited
extensions     middleware and guards around methods of extensions
fast_path      plain calls to servers, without a task and without the chain
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
