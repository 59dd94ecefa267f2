"""The answers that wait for a slot: in order, and not more than a limit."""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import Busy
from engine.worker.slots import Answer

MOST_WAITING = 128


class Waiting:
    """Answers by priority, then by when they came."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[Answer]:
        return iter(tuple(self._answers))

    def refuse_if_full(self) -> None:
        """Raises: Busy: too many wait already."""
        if len(self._answers) >= MOST_WAITING:
            raise Busy(
                f"{len(self._answers)} answers are waiting for the model already",
                hint="Wait until some are written, or stop those that are no longer needed.",
                details={"waiting": len(self._answers)},
            )

    def add(self, answer: Answer) -> None:
        self._answers.append(answer)
        self.sort()

    def sort(self) -> None:
        self._answers.sort(key=rank)

    def remove(self, answer: Answer) -> None:
        self._answers.remove(answer)


def rank(answer: Answer) -> tuple[int, float]:
    """The lower, the sooner it is its turn."""
    return answer.priority, answer.arrived_s
