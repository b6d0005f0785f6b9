"""A person with a browser, without the person: logs in where a test wants it."""

import re
from html import unescape

import httpx2


async def log_in(address: str, *, cookies: httpx2.Cookies | None = None) -> httpx2.Response:
    """Open the address of a login, click on its link, and return the page at the end."""
    async with httpx2.AsyncClient(follow_redirects=True, cookies=cookies) as browser:
        return await browser.get(await find_link(browser, address))


async def find_link(browser: httpx2.AsyncClient, address: str) -> str:
    """Open the address of a login and return the authorization URL that its page has."""
    page = await browser.get(address)
    link = re.search(r'href="([^"]+)"', page.text)
    assert page.status_code == 200, page.text
    assert link is not None, page.text
    return unescape(link[1])
