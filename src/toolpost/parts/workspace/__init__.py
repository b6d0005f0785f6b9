"""A code index: repositories taken apart by symbol, searched by name, by phrase and in plain words.

part         the index as a part of a gateway; `settings`, `doctor` and `commands` are what it brings
service      the workspace as its tools see it
spec         what a workspace is: repositories, limits
places       only what is allowed: a path becomes a file within a root, or is refused
gate         how many may ask at once

building     a build as the gateway sees it: a process, listened to, ended with its call
order        what goes between the two
turns        a caller's build comes before one in the background
watch        an index that follows its repository by itself
folders, notices   what has to be watched for that, and what the system says of it
__main__     that process
build        files on disk to the next generation of an index
scan         which files there are
secrets      which files nobody gets to see
reading      bytes as text
languages, symbols, chunks, words   a file taken apart
engine       the full-text index underneath
manifest     what an index was made of
generations  which generation counts; swapped atomically, checked when opened

opened       an index that is open
search, query, patterns   by words and phrases, or by regular expression
fresh        each hit compared with the disk
hits, merging   what a search returns, of several repositories as one
show, status    a slice of a file; how an index is doing
late         the libraries it is made of, loaded when first asked for
"""
