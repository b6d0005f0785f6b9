"""Processes that are started here end here, with everything that they started."""
