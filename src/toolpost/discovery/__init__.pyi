from toolpost.discovery.automatic import AUTOMATIC_NAMES as AUTOMATIC_NAMES
from toolpost.discovery.catalog import Catalog as Catalog
from toolpost.discovery.search import estimate_tokens as estimate_tokens
from toolpost.discovery.snapshot import ToolEntry as ToolEntry
from toolpost.discovery.snapshot import VisibleTools as VisibleTools
from toolpost.discovery.views import EVERYTHING as EVERYTHING
from toolpost.discovery.views import SEPARATOR as SEPARATOR
from toolpost.discovery.views import View as View
