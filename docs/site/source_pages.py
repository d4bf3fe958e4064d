"""The site's copies of source files, with their lines numbered: ``source/PATH.html``.

They are links' targets beside the pages, so that they open from a disk, too.
"""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name

HOUSE = Path(__file__).parents[2]
KINDS = (".csv", ".json", ".md", ".py", ".pyi", ".toml", ".yaml")
LARGEST = 300_000  # bytes of a file that is shown
_PATH = r"(?:[\w.-]+/)*[\w-]+(?:" + "|".join(re.escape(kind) for kind in KINDS) + ")"
_NAMED = re.compile(rf"(?<![\[`])`(?P<path>{_PATH})`(?![\]`])")
_FENCE = re.compile(r"^(?P<fence>```+).*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{path} - rematbench</title>
<link rel="stylesheet" href="{up}assets/source.css">
</head>
<body>
<p><a href="{up}index.html">rematbench</a> / <b>{path}</b></p>
{code}
</body>
</html>
"""


def place(path: str) -> str:
    """Where the site has a file of the repository."""
    return f"source/{path}.html"


def source_file(config: MkDocsConfig, path: str) -> File:
    """A file of the repository as a page of numbered lines."""
    text = (HOUSE / path).read_text(encoding="utf-8")
    kind = Path(path).suffix.removeprefix(".").removesuffix("i").replace("csv", "text")
    lexer = get_lexer_by_name(kind)
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", wrapcode=True)
    page = _PAGE.format(
        path=escape(path), up="../" * (path.count("/") + 1), code=highlight(text, lexer, formatter)
    )
    return File.generated(config, place(path), content=page)


def link(path: str, up: str, line: int | None = None) -> str:
    """A link, in Markdown, to a file or to a line of it."""
    anchor, words = (f"#L-{line}", f", line {line}") if line else ("", "")
    return f"[`{path}`{words}]({up}{place(path)}{anchor})"


def named(markdown: str) -> set[str]:
    """The repository's files that a page names as code, outside of its examples."""
    return {found["path"] for found in _NAMED.finditer(_FENCE.sub("", markdown)) if _is_ours(found)}


def with_links(markdown: str, up: str) -> str:
    """The page, where each file that it names as code leads to the file."""

    def linked(found: re.Match[str]) -> str:
        if not _is_ours(found):
            return found[0]
        in_table = found.string[found.string.rfind("\n", 0, found.start()) + 1 :].startswith("|")
        return _folded(found["path"], up) if in_table else link(found["path"], up)

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_NAMED.sub(linked, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join(parts) + _NAMED.sub(linked, markdown[end:])


def _folded(path: str, up: str) -> str:
    """A link for a narrow column: a line may end between the folder and the name."""
    folder, slash, name = path.rpartition("/")
    return f"[{f'`{folder}/`<wbr>' if slash else ''}`{name}`]({up}{place(path)})"


def _is_ours(found: re.Match[str]) -> bool:
    path = HOUSE / found["path"]
    return ".." not in path.parts and path.is_file() and path.stat().st_size <= LARGEST


def defined(module: str, name: str) -> tuple[str, int]:
    """The file and the line where a name of ``rematbench.module`` is defined."""
    path = _module_file(module)
    for node in ast.parse((HOUSE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and _imports(node, name):
            package = module if "/__init__." in path else module.rpartition(".")[0]
            home = f"{package}." if node.level else ""
            return defined(f"{home}{node.module}".removeprefix("rematbench."), name)
        if name in _names(node):
            return path, node.lineno
    raise LookupError(f"{path} does not define {name}")


def _module_file(module: str) -> str:
    stem = module.replace(".", "/")
    ends = (".py", "/__init__.pyi", "/__init__.py")
    tried = [f"{home}{stem}{end}" for home in ("", "rematbench/") for end in ends]
    return next(path for path in tried if (HOUSE / path).is_file())


def _imports(node: ast.ImportFrom, name: str) -> bool:
    return any((each.asname or each.name) == name for each in node.names)


def _names(node: ast.stmt) -> set[str]:
    """What a statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def styles() -> str:
    """Colours of source files, by day and by night."""
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    page = (HOUSE / "docs" / "site" / "source.css").read_text(encoding="utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{page}"
