"""`toolpost audit`, `audit verify` and `audit export`."""
