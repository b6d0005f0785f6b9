"""`toolpost chat` and `toolpost chat schedules`."""
