"""Re-exports the base classes of a part under their former module name."""

from toolpost.part_base import Part, PartDoctor

__all__ = ["Part", "PartDoctor"]
