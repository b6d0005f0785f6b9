"""Starts processes and ends them with everything that they started. Other packages import `tree` (and `lines`) alone."""
