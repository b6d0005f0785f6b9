"""What parts are given, and what they contribute."""
