"""`toolpost credentials`: set, list and remove the credentials that servers are used with, and rotate their key."""
