"""The race's policy in one place: what is worth a look, when is it enough, and who gets how much of the time?

`python -m benchmarks.replay_policy` replays kept tunings with each of these at half and at double its value; what that
showed is in benchmarks/results/policy-2026-11-28.md. "Replayed": the mean gain then; "no effect" is 2 % or less, two
deviations of another seed. Replays are seldom short of time, so shares of it show little. "Proposed": nothing kept says
whether another value does better; what would settle it is a replay of receipts that hold such cases.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Numbers that decide in a tuning. Shares are of the step or of the user's minutes, gains log ratios."""

    # What is worth a look.
    worth: float = 0.01
    """Share of the step that must be left to gain, and loss alone from which on a remedy has no part in the combination
    of all that is promised; half the band within which two processes are alike. Replayed: no effect."""
    promised: float = 0.03
    """Expected share of the step of a remedy that goes into the combination of all that is promised. Replayed: +0 % at
    half, +4 % at double."""
    effect: float = 0.02
    """Smallest gain that is planned for, and from which on what is not shown may be confirmed: less hardly matters.
    Replayed: no effect."""
    roomy: int = 5
    """Arms beside the reference from which on all that is promised is raced in a third form as well. Proposed."""
    risky: int = 2
    """Risk from which on the guard may well refuse: then there must be time for a second check (an encoder's bf16).
    Replayed: no effect."""

    # When a race has seen enough of an arm.
    sweeps: tuple[int, int, int, int] = (3, 6, 12, 24)
    """Sweeps after which those that hardly can win are given up (successive halving); the last is the most. While
    others wait the third is: the next twelve cost as much as these, and another's first three say more. Replayed: no
    effect."""
    hurdles: tuple[float, float, float] = (-2.0, -1.0, 0.0)
    """Standard errors that a mean must be above at each of them but the last. Replayed: no effect."""
    sure: float = 2.0
    """Standard errors that a remedy leans by which is taken along unproven. Replayed: no effect."""
    plenty: float = 0.1
    """Gain by which it may lean, from the second look on, to be worth its proof before others are sought (a training
    that generates between its steps raced for 129 of 216 s, and 1.25 was left with one round of three). Replayed: no
    effect."""

    # Blocks and rounds of the confirmation.
    edge_ns: float = 1e6
    """Waking an arm's processes and telling them to go: 0.3 to 0.8 ms, measured on two cores. Replayed: no effect."""
    edge_share: float = 0.01
    """Share of a block that this may take; twice that in a race, whose looks claim nothing. Replayed: no effect."""
    shortest_ns: float = 50e6
    """Least length of a block: a few turns of the system's scheduler. Replayed: no effect."""
    pilot: int = 4
    """Quadruples of the first round, which say how much they scatter. Replayed: no effect."""
    fewest_quadruples: int = 2
    """Quadruples of a round below which nothing is known of how they scatter. Replayed: no effect."""
    most_quadruples: int = 20
    """Quadruples of a round at most: by then a new start tells more. Replayed: +0 % at half, -4 % at double."""
    fewest_rounds: int = 3
    """Rounds of fresh processes that a verdict takes (decision 0013). Replayed: no race at half."""
    most_rounds: int = 12
    """Rounds at most (decision 0013). Replayed: no effect."""
    looks: tuple[float, float, float] = (0.5, 0.75, 1.0)
    """Shares of the planned rounds at which is looked, beside the fewest. Replayed: no effect."""
    round_share: float = 0.5
    """Least time of a round's blocks over that of its start, where it may overrun: starts alone say nothing. Replayed:
    no effect."""
    slack: float = 0.85
    """Share of the seconds planned for the fewest rounds: a later one may take longer than the first. Replayed: +0 % at
    half, -7 % at double."""
    overrun: float = 3.0
    """Longest comparison over its seconds, where those are too few for any verdict. Proposed."""

    # Shares of the user's minutes.
    race: float = 0.25
    """Least share for the race once something was shown to be faster or leans far. Replayed: no effect."""
    seeking: float = 0.6
    """The same before (on two cores a leaning of 5 % cut the start of compile with bf16). Replayed: no effect."""
    headroom: float = 0.1
    """For measuring what any loader fix could save; it starts beside the program as it is, which the race needs too.
    Proposed."""
    loader: float = 0.3
    """For the search of loader settings; more where the wait is a larger share of the step. Proposed."""
    loader_most: float = 0.6
    """Most share of that search, however long the wait. Proposed."""
    first_step: float = 0.7
    """Share of the time for a start, within which an arm must make its first step. Proposed."""
    warmed_up: float = 0.85
    """The same to be warm: one that is late no longer holds up the others (a T5 compiled anew in each warm-up step).
    Proposed."""

    # The loader.
    narrow: float = 0.08
    """Half the headroom's interval, from which on no more sweeps are made; 3.2 % of it are the processes' own.
    Proposed."""
    enough: float = 0.9
    """Share of the headroom that a setting must bring for none of the others to be tried. Proposed."""
    loader_worth: float = 0.1
    """Share of the step that must be there to gain for a search; else the race looks at what the model advises.
    Proposed."""
    loader_sweeps: tuple[int, int] = (4, 8)
    """Fewest and most sweeps of a setting. Proposed."""
    precise: float = 0.02
    """Standard error of a setting's gain below which its sweeps end. Proposed."""

    # What checking and confirming are thought to take.
    guard_runs: float = 2.0
    """Runs one after the other that the guard takes: four of five are made beside each other. One more where samples
    come in another order, whose other seeds are always run, and another for what else is in the combination. Replayed:
    no effect."""
    watched: float = 2.0
    """Time of a watched step over that of a plain one: BERT's, on four cores, 50 to 90 s in all. Replayed: no effect.
    """
    margin: float = 1.4
    """Time kept for checking and confirming over what they are thought to take: what is not confirmed is lost.
    Replayed: no effect."""
    shorter: float = 0.8
    """Longest proof, over that of a combination, of another that is proven instead, where it is about as fast.
    Replayed: no effect."""
    hurry: float = 3.0
    """Checks that must fit in what is left for the next one to leave out one remedy only (of GPT with two lower
    precisions two checks took 3.5 of 6 minutes, and nothing was confirmed)."""
    fills: float = 3.0
    """Starts that must be left for another arm to take a failed one's place: its own, and as much again, twice."""
    again: float = 1.5
    """Starts that must be left where the program as it is has to be started too: a start is cut at 70 % of the time."""
    anew: float = 0.5
    """Least length of a block in which arms are started anew, as a share of the plain program's start."""
    cached: float = 2.0
    """Longest later start over the plain program's, compiled code being kept (BERT: 45 s at first, then 15 to 21, plain
    10; at three times that a compiled combination of 2.6 was thought too long, and one of 2.2 was confirmed)."""

    @property
    def blocks(self) -> float:
        """Blocks of a round, on average, where time is short: a pilot first, then the fewest."""
        return 4 * (self.pilot + (self.fewest_rounds - 1) * self.fewest_quadruples) / self.fewest_rounds


POLICY = Policy()
