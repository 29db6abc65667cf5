"""For the site: notebooks become pages with their outputs, and files outside `docs/` are named, not linked."""

import re
import tempfile
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(?:#[^)]*)?\)")
_EXAMPLES = Path(__file__).parents[1] / "examples"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Run the notebooks of `examples/`, and add a page for each, with its figures."""
    import nbformat
    from mkdocs.structure.files import File
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter

    for path in sorted(_EXAMPLES.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, resources={"metadata": {"path": folder}}).execute()
        text, about = MarkdownExporter().from_notebook_node(notebook)
        made = {f"{path.stem}.md": text}
        for name, content in about["outputs"].items():
            made[f"{path.stem}-{name}"] = content
            made[f"{path.stem}.md"] = made[f"{path.stem}.md"].replace(f"({name})", f"({path.stem}-{name})")
        for name, content in made.items():
            files.append(File.generated(config, f"examples/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files of the repository by their names."""
    depth = page.file.src_uri.count("/")

    def named(link: re.Match[str]) -> str:
        outside = link[2].count("../") > depth
        return f"{link[1]} (`{link[3]}`)" if outside else link[0]

    return _LINK.sub(named, markdown)
