from toolpost.credentials.fetch import Fetcher as Fetcher
