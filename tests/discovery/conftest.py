"""What tests of discovery may ask for."""

from tests.upstreams.conftest import nothing_leaks

__all__ = ["nothing_leaks"]
