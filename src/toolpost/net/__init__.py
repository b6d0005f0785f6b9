"""The HTTP client of servers, credentials and parts: proxies, certificates, event streams."""
