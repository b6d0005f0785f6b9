"""Vocabulary of every layer. Nothing here knows MCP.

ids             names and ids, each with a type
caller          who is calling, and which tools they may see
events          log lines as events with fields; `log_limit` limits those that strangers can cause
redaction       names that hold secrets, and values without them
trace_context   `traceparent`

values          JSON values compared and typed as JSON does
words           the words of a name
nearest         the known name that was probably meant
normalization, urls  Unicode and URLs, in linear time
server_name     the name of a server, which is the prefix of its tools
signing         Ed25519 signatures
passphrase      hashes of passphrases

clocks          a clock that never jumps
timestamps      times of the wall clock as text
stamps          whether a file has changed, without reading it
state_folder    the folder `.toolpost`
log_files       the log on disk, read from its end; `cli/logs` writes it
action_items    what waits for a person
author_code     where in an author's code an error came from
method_caches   caches of an object's own methods
lazy_names, late_import  names and packages that are loaded when first used
version         the version of Toolpost
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
