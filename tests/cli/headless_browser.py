"""A browser without a window and a person, for `BROWSER`: opens a URL and follows its redirects, and that is all."""

import sys
import urllib.request

urllib.request.urlopen(sys.argv[-1], timeout=20).read()
