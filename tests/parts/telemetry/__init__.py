"""OpenTelemetry as a part."""
