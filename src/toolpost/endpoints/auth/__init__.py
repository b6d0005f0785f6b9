"""Authentication and authorization of HTTP clients: tokens, OAuth, Host and Origin."""
