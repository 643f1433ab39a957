"""How a process is watched: its metrics for Prometheus, its spans for OpenTelemetry."""
