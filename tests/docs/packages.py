"""A package of a reader, installed without a network."""

import shutil
import tomllib
from pathlib import Path


def install(folder: Path) -> Path:
    """Do what `pip install --target` would: packages and metadata in a folder, which is returned to be put on the path."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    site = folder / "site"
    shutil.copytree(folder / "src", site)
    metadata = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    points = [f"[{group}]\n" + "\n".join(f"{n} = {v}" for n, v in of.items()) for group, of in groups]
    (metadata / "entry_points.txt").write_text("\n".join(points))
    return site
