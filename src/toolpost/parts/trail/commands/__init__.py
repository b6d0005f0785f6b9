"""`toolpost trail`."""
