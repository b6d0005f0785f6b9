"""One way to serve every peer's HTTP application: uvicorn with uvloop and httptools, no access log."""

from typing import Any

import uvicorn


def run(application: Any, port: int) -> None:
    uvicorn.Server(config_of(application, port)).run()


def config_of(application: Any, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
    )
