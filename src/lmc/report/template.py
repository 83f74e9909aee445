"""From a template to a file: pages that are complete in themselves, load nothing and run no script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import lmc
from lmc.errors import ArgumentError
from lmc.files import one_line, write_atomically


def write_page(out: Path, template: str, **values: Any) -> Path:
    """Fill a template and write the page; its folder is made where it is missing."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template).render(version=lmc.__version__, **values)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # JSON can spell characters that UTF-8 has no bytes for.
        write_atomically(out, lambda file: file.write(page.encode(errors="replace")))
    except OSError as error:
        raise ArgumentError(f"out={out}: cannot be written ({one_line(error)})") from None
    return out
