"""Who may call: tokens, OAuth, Host and Origin."""
