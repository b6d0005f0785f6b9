"""A git repository, read without git: HEAD, refs, index and ignore rules as bytes on disk, none of which is ever executed.

A repository is data of a stranger's. git itself runs programs that a repository names (filters, fsmonitor, hooks, helpers) and
fetches what is missing from places that it names; nothing here starts a process, opens a connection or follows an include.
Every read goes through no link below its folder, is of a regular file, and is bounded (docs/decisions/0040).

repository   where it is, whose it is, and what HEAD says
index        the files that git knows, with what it noted of each
objects      the tree of a commit
config       the few settings that matter
ignore       what .gitignore and its like leave out
changes      whether anything differs from HEAD
"""
