"""`toolpost audit`."""
