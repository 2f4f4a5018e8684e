"""`gobrrr remedies`: what there is to try, and what each would be by hand."""

from __future__ import annotations

import argparse

from gobrrr.errors import GobrrrError


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add the argument: at most one name."""
    parser.add_argument("remedy", nargs="?", help="show the page of this one")


def run(args: argparse.Namespace) -> int:
    """Print to stdout."""
    from gobrrr.remedies import registry
    from gobrrr.remedies.edits import catalogue

    if args.remedy:
        print(page(args.remedy), end="")
        return 0
    live = [(r.name, r.safety, r.title) for r in map(registry.remedy, registry.names())]
    edits = [(e.name, e.safety, e.title) for e in map(catalogue.edit, registry.edit_names())]
    longest = max(len(name) for name, *_ in (*live, *edits))
    for kind, rows in (("remedy", live), ("edit", edits)):
        for name, safety, title in ((kind, "safety", "what it does"), *rows):
            print(f"{name:<{longest}}  {safety:<9}  {title}")
        print()
    changes = "exact: nothing, tolerance: rounding, order: the order of samples, semantic: results"
    print(f"safety: what may change ({changes})")
    print("remedies act on the running program; semantic ones only when named: gobrrr tune --try NAME train.py")
    print("edits change the source: gobrrr remedies NAME shows how, gobrrr prove --patch measures one")
    return 0


def page(name: str) -> str:
    """The page of a remedy or an edit. Raises GobrrrError for an unknown name."""
    from gobrrr.remedies import registry

    if text := registry.text_of(name):
        return text
    remedy = registry.remedy(name)
    raise GobrrrError(f"the remedy {remedy.name} has no page", "read about it where its package is documented")
