"""A gateway on stdio with the servers behind it that its argument names."""

import asyncio
import json
import sys

from tests.ways import IN_MEMORY
from toolpost.app import open_app, serve_on_stdio
from toolpost.endpoints.stdio import Wire
from toolpost.upstreams.spec import ServerSpec


async def main() -> None:
    specs = [ServerSpec(**json.loads(text)) for text in sys.argv[1:]]
    async with open_app(IN_MEMORY, bundled=False, servers=specs) as app:
        await serve_on_stdio(app, Wire(), asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
