"""The interface for authors of parts, and the parts that come with Toolpost: strangers to each other.

Each folder is a part, and its `PART` says everything about it. Parts of other packages are found by their entry points in the
group `toolpost.parts`; docs/guides/write-a-part.md writes one. The names are looked up when they are first used: every part is
imported whenever a configuration is read.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
