"""`toolpost chat` and `toolpost schedules`."""
