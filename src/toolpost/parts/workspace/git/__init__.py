"""Read git repositories without running git: HEAD, refs, index and ignore rules, from their files.

A repository is untrusted data. git runs programs that a repository names (filters, fsmonitor, hooks, helpers) and fetches
missing objects from where it says; nothing here starts a process, opens a connection or follows an include. Every read is of
a regular file, follows no link, and is bounded (docs/decisions/0040).

repository   find a repository, check its owner, read HEAD
index        the tracked files, with size, times and id of each
objects      the tree of a commit
config       settings of the repository and the user
ignore       rules of .gitignore, info/exclude and the user
changes      whether the work tree differs from HEAD
files        opens and reads files, without following links and within limits
"""
