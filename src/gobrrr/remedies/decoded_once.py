"""JPEG pictures are decoded in the first epoch and kept, whatever is drawn after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.draft_decoding import cannot_wait
from gobrrr.remedies.loader_workers import room
from gobrrr.remedies.loaders import AFTER_THE_FIRST, most_said
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model import Saving
from gobrrr.rules.pictures import SAVED_BY_DECODING_ONCE

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams
    from gobrrr.rules.verdict.model import Report


class DecodedOnce(Remedy):
    """Pillow's JPEG files that are converted to "RGB" or "L", resized or reduced are decoded, and made small, once for
    each file's bytes; the pixels are kept in memory, a quarter of what is free at most, and given as pictures of their
    own. What is drawn comes after: augmentation is what it was. In the program's own process; workers, and what is not
    a whole JPEG file of one of these modes, decode as ever."""

    name = "decoded_once"
    title = "keeps JPEG pictures in memory as they are after decoding and resizing"
    safety = "exact"
    place = "loader"
    unseen = AFTER_THE_FIRST
    codes = ("BRR401",)
    conflicts = ("draft_decoding", "loader_workers", "one_worker", "computed_once")
    by_hand = "self.pictures = [Image.open(path).convert('RGB').resize(size) for path in paths]  # in __init__"

    def probe(self) -> str:
        return cannot_wait()

    def predicts(self, report: Report) -> Saving:
        """Of decoding and resizing, where a second epoch was seen to begin."""
        said = most_said(report, self.codes, SAVED_BY_DECODING_ONCE)
        if said is None:
            return Saving()
        most = super().predicts(report).ceiling_ns
        return Saving(0.0, min(said, most), most)

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.kept_pictures import KeptPictures
        from gobrrr.remedies.pictures import put_in, take_away

        said = False

        def told() -> None:
            nonlocal said
            if not said:
                said = True
                seams.applied(self.name)

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            if workers := kwargs.get("num_workers"):
                seams.declined(self.name, f"the loader has {workers} workers, each with a memory of its own")
            return kwargs

        seams.undo(take_away)
        put_in(KeptPictures(room(), seams.aside, told))
        seams.at_loader(change)


REMEDY = DecodedOnce()
