"""Arguments of the commands that take files rather than keys: their mistakes are one line, too."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Arguments(argparse.ArgumentParser):
    """An argument parser that says what is wrong without repeating the usage."""

    def error(self, message: str) -> NoReturn:
        """Exit 2."""
        self.exit(2, f"{self.prog}: {message}; --help says what there is\n")
