"""Which library calls make the samples, and what cheaper way of them is known."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.recording.model.facts import LoaderFacts
from gobrrr.rules.data.compute_once import KEEPER
from gobrrr.rules.data.pictures import loading_lines
from gobrrr.rules.model.evidence import ratio
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.model.lines import Functions, below
from gobrrr.units import share

LEAST = 0.3
"""Share of the loading from which they are named (proposed)."""


class Known(NamedTuple):
    """Calls of one kind, and what a person does instead of one of them for each sample."""

    what: str
    calls: tuple[Functions, ...]
    instead: str


PARSED = "Parse all records once and keep arrays (NumPy, Arrow): text is parsed anew whenever it is asked for."
KNOWN = (
    Known("taking rows out of pandas", (Functions(("pandas.core.",)),),
          "Take the columns out once as arrays (frame[column].to_numpy()) and index those: pandas makes an object of "
          "every row."),
    Known("parsing JSON", (Functions(("json.",), frozenset({"load", "loads", "decode", "raw_decode"})),), PARSED),
    Known("parsing text", (Functions(("ast.", "csv.", "yaml.", "xml.", "configparser.")),), PARSED),
    Known("tokenising", (Functions(("tokenizers.", "tiktoken.", "sentencepiece.", "nltk.", "spacy.",
                                    "transformers.tokenization")),),
          "Tokenise all texts once before training, many at a time (dataset.map(..., batched=True))."),
    Known("reading HDF5", (Functions(("h5py.",)),),
          "Open the file once in each worker, not for each sample, and read the rows of a batch at once: every read "
          "goes through the whole library."),
    Known("unpacking", (Functions(("gzip.", "zipfile.", "bz2.", "lzma.", "tarfile.", "_compression.")),),
          "Unpack once: an archive is unpacked anew for every sample that is taken out of it."),
    Known("loading arrays", (Functions(("numpy.lib.",), frozenset({"load", "read_array", "open_memmap"})),),
          "Put samples into one array and open that once with np.load(..., mmap_mode='r')."),
    Known("unpickling", (Functions(("torch.serialization.",), frozenset({"load", "_load", "_legacy_load"})),),
          "Put samples into one tensor and load that once (torch.load(..., mmap=True)): a file of its own for each is "
          "opened and unpickled each time."),
    Known("working on sound", (Functions(("librosa.", "torchaudio.", "resampy.", "audioread.")),),
          "Resample once and store that; make the spectrograms of a whole batch at once, in the step."),
    Known("filtering signals", (Functions(("scipy.signal.", "scipy.ndimage.", "scipy.fft.")),),
          "Filter and resample once and store that, or do it for a whole batch at once."),
    Known("taking sparse rows", (Functions(("scipy.sparse.",)),),
          "Take the rows of a batch at once (matrix[indices].toarray()), or keep the matrix dense where it fits."),
    Known("copying objects", (Functions(("copy.",), frozenset({"deepcopy"})),),
          "Copy what is changed alone: deepcopy walks through every object of a sample."),
    Known("matching patterns", (Functions(("re.",), frozenset({"sub", "split", "findall", "search", "match"})),),
          "Clean the texts once, before training."),
)  # fmt: skip


def with_libraries(found: Finding, ledger: Ledger, loader: LoaderFacts) -> Finding:
    """The finding, with the costliest kind of calls that a cheaper way is known of."""
    lines = loading_lines(ledger, loader)
    everything = sum(line.ns for line in lines)
    if everything <= 0:
        return found
    spent = {known: sum(below(line, known.calls)[0] for line in lines) for known in KNOWN}
    known = max(spent, key=lambda each: spent[each])
    part = spent[known] / everything
    if part < LEAST:
        return found
    advice = (found.advice, known.instead) if KEEPER in found.remedies else (known.instead, found.advice)
    return replace(
        found,
        message=f"{found.message}: {share(part)} of it {known.what}",
        advice=" ".join(advice),
        evidence=found.evidence | {known.what: ratio(part)},
    )
