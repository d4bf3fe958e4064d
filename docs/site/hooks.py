"""What the site has beside the pages of ``docs``: the README, and pages made from the code.

Everything here is made when the site is built (``make docs``), so that no page can say what the
code does not.
"""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rematbench.conf_keys import choices_of, group_keys
from rematbench.helps import HELPS, help_text

HOUSE = Path(__file__).parents[2]
DOCS = HOUSE / "docs"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name each paper's page among the strategies."""
    assert config.nav is not None
    section = next(part["Strategies"] for part in config.nav if "Strategies" in part)
    section += [
        {_title(path): str(path.relative_to(DOCS))} for path in sorted(DOCS.glob("papers/*.md"))
    ]
    return config


def _title(path: Path) -> str:
    """What a page is about, in a few words: its heading up to the authors."""
    heading = path.read_text(encoding="utf-8").partition("\n")[0]
    return re.split(r"[:(]", heading.removeprefix("# "))[0].strip()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the repository's files that pages link to."""
    pages = {
        "index.md": (HOUSE / "README.md").read_text(encoding="utf-8"),
        "commands.md": commands(),
        "options.md": options(),
        "api.md": api(),
        "claims.md": claims(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    for path in sorted(_linked(pages["index.md"])):
        files.append(
            File.generated(config, f"files/{path.relative_to(HOUSE)}", abs_src_path=str(path))
        )
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links that leave ``docs`` lead to the site's copy of that file, or become words."""
    source = page.file.src_uri
    home = HOUSE if source == "index.md" else (DOCS / source).parent

    def mended(link: re.Match[str]) -> str:
        path = (home / link["path"]).resolve()
        if path == DOCS / "claims.csv":
            place = "claims.md"
        elif path.is_relative_to(DOCS):
            place = str(path.relative_to(DOCS))
        elif path.is_file():
            place = f"files/{path.relative_to(HOUSE)}"
        else:
            return link["text"]
        up = "../" * source.count("/")
        return f"{link['image']}[{link['text']}]({up}{place}{link['anchor'] or ''})"

    return _LINK.sub(mended, markdown)


def _linked(readme: str) -> set[Path]:
    """The repository's files outside of ``docs`` that the README and the pages link to."""
    texts = [(HOUSE, readme)]
    texts += [(path.parent, path.read_text(encoding="utf-8")) for path in DOCS.rglob("*.md")]
    found = {
        (home / link["path"]).resolve() for home, text in texts for link in _LINK.finditer(text)
    }
    return {path for path in found if path.is_file() and not path.is_relative_to(DOCS)}


def commands() -> str:
    """Each command's ``--help``."""
    text = "# Commands\n\nWhat `--help` of each command says.\n"
    for name in HELPS:
        text += f"\n## {name}\n\n```text\n{help_text(name)}\n```\n"
    return text


def options() -> str:
    """The options of each strategy and model, with their defaults."""
    text = "# Options\n\nOf what is chosen by `strategy=` and `model=`: keys and defaults.\n"
    for group, title in (("strategy", "Strategies"), ("model", "Models")):
        text += f"\n## {title}\n"
        for name in choices_of(group):
            rows = group_keys(group, name)
            text += f"\n### {group}={name}\n\n"
            if not rows:
                text += "No options.\n"
                continue
            text += "| key | default | |\n|---|---|---|\n"
            for key, default, meaning in rows:
                cells = (f"`{key}`", f"`{default}`", " ".join(meaning.split()))
                text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


def api() -> str:
    """Every public name of the package, by the module that it is in."""
    tree = ast.parse((HOUSE / "rematbench" / "__init__.pyi").read_text(encoding="utf-8"))
    text = "# API\n\nEvery name that `from rematbench import ...` offers.\n"
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            text += f"\n## rematbench.{node.module}\n"
            text += "".join(f"\n::: rematbench.{node.module}.{each.name}\n" for each in node.names)
    return text


def claims() -> str:
    """The papers' claims beside our numbers."""
    with (DOCS / "claims.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    head, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    text = "# Claims\n\nWhat each paper prints beside what its experiment gives here.\n\n"
    text += "| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n"
    return text + "".join("| " + " | ".join(row) + " |\n" for row in rows)
