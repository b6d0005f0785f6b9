from toolpost.net.client import HttpClient as HttpClient
from toolpost.net.client import HttpFailed as HttpFailed
from toolpost.net.client import Response as Response
from toolpost.net.network import DIRECT as DIRECT
from toolpost.net.network import Network as Network
