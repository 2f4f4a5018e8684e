"""`gobrrr remedies`: what there is to try, and what each would be by hand."""

from __future__ import annotations

import argparse

from gobrrr.errors import GobrrrError


class Remedies:
    """List the remedies, or show the page of one."""

    name = "remedies"
    help = "the remedies there are, and what each does"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Add the argument: at most one name."""
        parser.add_argument("remedy", nargs="?", help="show the page of this one")

    def run(self, args: argparse.Namespace) -> int:
        """Print to stdout."""
        from gobrrr.remedies import registry

        if args.remedy:
            print(page(args.remedy), end="")
            return 0
        all_of_them = [registry.remedy(name) for name in registry.names() if name != "identity"]
        longest = max(len(remedy.name) for remedy in all_of_them)
        print(f"{'remedy':<{longest}}  {'safety':<9}  what it does")
        for remedy in all_of_them:
            print(f"{remedy.name:<{longest}}  {remedy.safety:<9}  {remedy.title}")
        changes = "exact: nothing, tolerance: rounding, order: the order of samples, semantic: results"
        print(f"\nsafety: what may change ({changes})")
        print("semantic remedies are tried only when named: gobrrr tune --try NAME train.py")
        return 0


def page(name: str) -> str:
    """The remedy's page. Raises GobrrrError for an unknown name."""
    from gobrrr.remedies import registry

    remedy = registry.remedy(name)
    file = registry.pages().get(name)
    if file is None:
        raise GobrrrError(f"the remedy {remedy.name} has no page", "read about it where its package is documented")
    return file.read_text(encoding="utf-8")


command = Remedies()
