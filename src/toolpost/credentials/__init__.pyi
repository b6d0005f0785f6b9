from toolpost.credentials.caller_credentials import CallerCredentials as CallerCredentials
from toolpost.credentials.fetch import Fetcher as Fetcher
