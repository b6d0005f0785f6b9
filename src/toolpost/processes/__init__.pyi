from toolpost.processes.tree import CompletedCommand as CompletedCommand
