"""A code index: repositories split into symbols, searched by name, by phrase, in plain words or by regular expression.

part            the part; `settings`, `commands` and `doctor` are what it brings
plugin, schemas  the tools `workspace__…`
service         what the tools call: build, search, show, status
spec            repositories and limits

build_process   builds from the side of the gateway: a process for each, and their order
build_messages  the messages between the two
__main__        the build process
build           the next generation of an index, from the files on disk
scan            which files a repository has
secrets, paths  which files may be read, and how they are opened
masking         credentials in text, hidden
git/            git repositories, read without running git
text            bytes to text
languages, symbols   a file split into symbols
engine          the full-text index (tantivy)
indexed_files   which files an index was built from
generations     the folders of an index, replaced atomically and checked when opened
watch           updates in the background

open_index      open indexes, shared by searches
query, search, patterns   searches by words, and by regular expression
freshness       files on disk compared with the index
results         hits, of several repositories merged
excerpt         lines of a file
status          state of the indexes, settings and warnings
optional        libraries that are imported when first used
"""

from toolpost.parts import Command, Part

PART = Part(
    name="workspace",
    summary="A code index.",
    opens="toolpost.parts.workspace.part:open_workspace",
    settings=("toolpost.parts.workspace.settings:WORKSPACE",),
    doctor="toolpost.parts.workspace.doctor:WorkspaceDoctor",
    plugins=("workspace",),
    commands={
        "workspace": Command(
            "toolpost.parts.workspace.commands:workspace", "Build, search and look after the code index."
        )
    },
)
