"""What the fast path does not serve, through the official SDK."""
