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

from library_pages import FIELD, leaderboard_files, library_files
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation, Section
from mkdocs.structure.pages import Page
from source_pages import defined, link, named, place, source_file, styles, with_links

from rematbench.cli.conf_keys import choices_of, group_keys
from rematbench.cli.helps import HELPS, help_text

HOUSE = Path(__file__).parents[2]
DOCS = HOUSE / "docs"
MADE_FROM = {
    "index.md": "README.md",
    "commands.md": "rematbench/cli/helps.py",
    "options.md": "rematbench/cli/conf_keys.py",
    "api.md": "rematbench/__init__.pyi",
    "claims.md": "docs/claims.csv",
}
LONG = 32  # characters of a value that has a line to itself
FIRST = ("paper", "claim", "verdict")  # of the columns of claims
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
    linked = _linked(pages["index.md"])
    for path in sorted(path for path in linked if path.suffix != ".py"):
        files.append(
            File.generated(config, f"files/{path.relative_to(HOUSE)}", abs_src_path=str(path))
        )
    for path in ("iframe-worker.js", "site.css", "site.js"):
        files.append(
            File.generated(config, f"assets/{path}", abs_src_path=str(DOCS / "site" / path))
        )
    files.append(File.generated(config, "assets/source.css", content=styles()))
    for file in (*library_files(config), *leaderboard_files(config)):
        files.append(file)
    for name in sorted(_sources([*pages.values(), *_pages().values()], linked)):
        files.append(source_file(config, name))
    return files


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    """Name pages that are no Markdown: of the leaderboard, of the library."""
    section = next(
        each for each in nav.items if isinstance(each, Section) and each.title == "Results"
    )
    beside = {"The whole leaderboard": FIELD, "All instances": "library/index.html"}
    links = [Link(title, url) for title, url in beside.items()]
    for each in links:
        each.parent = section
    section.children[1:1] = links
    return nav


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Files that a page names, and the page's own, lead to the site's copies of them."""
    source = page.file.src_uri
    if source.startswith("papers/"):
        page.meta.setdefault("search", {"boost": 4})  # who looks for a strategy wants its page
    up = "../" * source.count("/")
    text = with_links(_with_copies(markdown, source, up), up)
    origin = _origin(source)
    return f"{text}\n\nSource of this page: {link(origin, up)}\n{{: .source }}\n"


def _origin(source: str) -> str:
    """The repository's file that a page is made from."""
    if source.startswith("files/"):
        return source.removeprefix("files/")
    return MADE_FROM.get(source, f"docs/{source}")


def _with_copies(markdown: str, source: str, up: str) -> str:
    """Links that leave ``docs`` lead to the site's copy of that file, or become words."""
    home = (HOUSE / _origin(source)).parent

    def mended(found: re.Match[str]) -> str:
        path = (home / found["path"]).resolve()
        if found["path"].startswith("source/"):  # made here
            return found[0]
        if path == DOCS / "claims.csv":
            target = "claims.md"
        elif path.is_relative_to(DOCS):
            target = str(path.relative_to(DOCS))
        elif path.is_file() and path.suffix == ".py":
            target = place(str(path.relative_to(HOUSE)))
        elif path.is_file():
            target = f"files/{path.relative_to(HOUSE)}"
        else:
            return found["text"]
        return f"{found['image']}[{found['text']}]({up}{target}{found['anchor'] or ''})"

    return _LINK.sub(mended, markdown)


def _linked(readme: str) -> set[Path]:
    """The repository's files outside of ``docs`` that the README and the pages link to."""
    texts = [(HOUSE, readme)]
    texts += [(path.parent, text) for path, text in _pages().items()]
    found = {
        (home / each["path"]).resolve() for home, text in texts for each in _LINK.finditer(text)
    }
    return {path for path in found if path.is_file() and not path.is_relative_to(DOCS)}


def _pages() -> dict[Path, str]:
    """The text of each page of ``docs``."""
    return {path: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}


def _sources(texts: list[str], linked: set[Path]) -> set[str]:
    """The files that pages name, link to, or are made from."""
    copied = [path for path in linked if path.suffix == ".md"]
    texts = texts + [path.read_text(encoding="utf-8") for path in copied]
    found = set().union(*(named(text) for text in texts), MADE_FROM.values())
    found |= {str(path.relative_to(HOUSE)) for path in [*_pages(), *copied]}
    found |= {str(path.relative_to(HOUSE)) for path in linked if path.suffix == ".py"}
    return found | {defined(module, name)[0] for module, name in _public()}


def commands() -> str:
    """Each command's ``--help``."""
    text = "# Commands\n\nWhat `--help` of each command says.\n"
    for name in HELPS:
        text += f"\n## {name}\n\n```{{ .text .columns }}\n{help_text(name)}\n```\n"
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
                cells = (f"`{key}`", _in_parts(default), _plain(meaning))
                text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


def _plain(docstring: str) -> str:
    """In one line, without roles."""
    return re.sub(r":\w+:(?=`)", "", " ".join(docstring.split()))


def _in_parts(value: str) -> str:
    """A value as code, a long one in pieces between which a line may end."""
    parts = re.split("(?<=,)", value) if len(value) > LONG else [value]
    return " ".join(f"`{part}`" for part in parts)


def _public() -> list[tuple[str, str]]:
    """Every public name of the package, with the module that it is in."""
    tree = ast.parse((HOUSE / "rematbench" / "__init__.pyi").read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [(node.module or "", each.name) for node in nodes for each in node.names]


def api() -> str:
    """Every public name of the package, by the module that it is in, and where it is defined."""
    text = "# API\n\nEvery name that `from rematbench import ...` offers.\n"
    last = None
    for module, name in _public():
        if module != last:
            text += f"\n## rematbench.{module}\n"
        last = module
        path, line = defined(module, name)
        text += f"\n::: rematbench.{module}.{name}\n"
        text += f"\nSource: {link(path, '', line)}\n"
        text += "{: .source }\n"
    return text


def claims() -> str:
    """The papers' claims beside our numbers, what became of each among the first columns."""
    with (DOCS / "claims.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    columns = [*FIRST, *(name for name in lines[0] if name not in FIRST)]
    text = "# Claims\n\nWhat each paper prints beside what its experiment gives here.\n\n"
    text += "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n"
    for line in lines:
        row = "| " + " | ".join(line[name].replace("|", "\\|") for name in columns) + " |\n"
        text += re.sub(r"\w+(?:/[\w-]+)+\.(?:py|csv|json|md)\b", r"`\g<0>`", row)  # links
    return text
