"""Tools found by need."""
