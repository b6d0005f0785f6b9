from toolpost.discovery.search import estimate_tokens as estimate_tokens
from toolpost.discovery.search import index_texts as index_texts
from toolpost.discovery.snapshot import ToolEntry as ToolEntry
from toolpost.discovery.snapshot import VisibleTools as VisibleTools
from toolpost.discovery.views import EVERYTHING as EVERYTHING
from toolpost.discovery.views import SEPARATOR as SEPARATOR
from toolpost.discovery.views import View as View
