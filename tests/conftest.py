"""Settings every test shares."""

from hypothesis import HealthCheck, settings

# Two busy cores draw slowly now and then; a property fails for what it finds, never for its time.
settings.register_profile("ombus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ombus")
