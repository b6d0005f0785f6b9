"""What commands are made of: options, tables, failures, exit codes, the client of a running gateway."""
