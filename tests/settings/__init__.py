"""The configuration: our own file, variables, secrets, and the files of other clients."""
