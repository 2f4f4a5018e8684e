"""JPEG pictures are decoded in the first epoch and kept, whatever is drawn after that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.cache.draft_decoding import cannot_wait
from gobrrr.remedies.loader.loader_arguments import Keeper, memory_room
from gobrrr.rules.data.library_calls import SAVED_BY_DECODING_ONCE

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class DecodedOnce(Keeper):
    """Pillow's JPEG files that are converted to "RGB" or "L", resized or reduced are decoded, and made small, once for
    each file's bytes; the pixels are kept in memory, a quarter of what is free at most, and given as pictures of their
    own. What is drawn comes after: augmentation is what it was. In the program's own process; workers, and what is not
    a whole JPEG file of one of these modes, decode as ever."""

    name = "decoded_once"
    title = "keeps JPEG pictures in memory as they are after decoding and resizing"
    said = SAVED_BY_DECODING_ONCE
    codes = ("BRR401",)
    conflicts = ("draft_decoding", "loader_workers", "one_worker", "computed_once")
    by_hand = 'self.pictures = [Image.open(path).convert("RGB").resize(size) for path in paths]'

    def probe(self) -> str:
        return cannot_wait()

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.cache.kept_pictures import KeptPictures
        from gobrrr.remedies.cache.pictures import put_in, take_away

        said, lengths = False, {0: 0}

        def told() -> None:
            nonlocal said
            if not said:
                said = True
                seams.applied(self.name)

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            data = kwargs.get("dataset")
            if kwargs.get("num_workers"):
                seams.declined(self.name, "the loader has workers, each with a memory of its own")
            try:
                lengths[id(data)] = len(data)  # type: ignore[arg-type]
            except (TypeError, NotImplementedError):
                lengths[0] = 1 << 62  # nobody knows
            return kwargs

        seams.undo(take_away)
        put_in(KeptPictures(memory_room(), seams.aside, told, lambda: sum(lengths.values()) or math.inf))
        seams.at_loader(change)
