"""Tools that agents use in a conversation."""
