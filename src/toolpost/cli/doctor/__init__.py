"""`toolpost doctor`: one module per kind of check."""
