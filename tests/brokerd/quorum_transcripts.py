"""Transcripts of elections: testdata/quorum_*.txt, each a story that a person can read and the core must repeat word by word.

A line that begins with ">" is a command, the lines after it are what happened; blank lines and lines with "#" stay.

    > group 3                 replicas 0, 1, 2; `observers` may follow with a number
    > log 1: 1 1 2            give replica 1 a log whose entries are of these epochs
    > wait 2.0                all clocks go on
    > timeout 1               replica 1 waits longer than it does for a leader
    > tick 0                  replica 0 looks at its clock
    > deliver                 everyone reads all letters, and the answers to them
    > lose                    the letters that no one has read are lost
    > pull 1                  replica 1 pulls once, and flushes what it gets
    > level                   all pull until they hold what the leader has
    > send 0 text             the leader stores a message and flushes it
    > kill 0, start 0, cut 0 1, isolate 0, rejoin 0, resign 0, transfer 2, add 3, remove 2
    > status

`python -m tests.brokerd.quorum_transcripts` writes them again; read the difference before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from brokerd.replica.errors import RoleRefused
from brokerd.replica.pull_protocol import Diverged, Fenced, PullDecision, SendBytes
from brokerd.replica.quorum_messages import BeginEpoch
from brokerd.replica.quorum_state import State
from tests.brokerd.quorum_group import FIRST_MS, Node, QuorumGroup

FOLDER = Path(__file__).parent / "testdata"


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("quorum_*.txt"))


def replayed(text: str) -> str:
    """The transcript with what happens now."""
    lines: list[str] = []
    story: Story | None = None
    for line in text.splitlines():
        if line.startswith(">"):
            words = line[1:].split()
            lines.append(line)
            if words[0] == "group":
                story = Story(int(words[1]), observers=int(words[3]) if len(words) > 3 else 0)
            else:
                assert story is not None, f"a transcript begins with > group: {line}"
                story.do(words)
            lines += [f"    {reported}" for reported in story.take()]
        elif not line.strip() or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


class Story:
    """One group, and the transcript of it."""

    def __init__(self, replicas: int, *, observers: int) -> None:
        self._lines: list[str] = []
        self._group = QuorumGroup.of(replicas, observers=observers)
        self._group.note = self._lines.append
        self._seen: dict[int, tuple[State, int]] = {}
        self._look()
        self._lines.clear()

    def take(self) -> list[str]:
        reported, self._lines[:] = list(self._lines), []
        return reported

    def do(self, words: list[str]) -> None:
        verb, *rest = words
        getattr(self, f"_{verb}")(*rest)
        self._look()

    def _look(self) -> None:
        for node in self._group.nodes.values():
            now = (node.state, node.replica.epoch)
            if node.up and self._seen.get(node.id) != now:
                self._seen[node.id] = now
                self._lines.append(f"{node.id} is {now[0].value} in epoch {now[1]}")

    def _node(self, number: str) -> Node:
        return self._group[int(number)]

    @property
    def _leader(self) -> Node:
        (leader,) = self._group.leaders
        return self._group[leader]

    def _log(self, number: str, *epochs: str) -> None:
        self._node(number.rstrip(":")).write_log(map(int, epochs))
        self._lines.append(log_of(self._node(number.rstrip(":"))))

    def _wait(self, seconds: str) -> None:
        self._group.wait(float(seconds))

    def _timeout(self, number: str) -> None:
        self._node(number).time_out()

    def _tick(self, number: str) -> None:
        self._node(number).tick()

    def _deliver(self) -> None:
        while self._group.letters:
            first = self._group.letters[0]
            self._group.deliver(lambda letter, first=first: letter is first)  # type: ignore[misc] # bound by its default
            self._look()
        for leader in self._group.leaders:
            self._group[leader].flush()

    def _lose(self) -> None:
        self._lines += [f"{one.sender} -> {one.to}  lost" for one in self._group.letters]
        self._group.lose_letters()

    def _pull(self, number: str) -> None:
        node = self._node(number)
        end_offset = node.store.end_offset
        decision = node.pull()
        self._lines.append(f"{number}: {pulled(decision, node, end_offset)}")

    def _level(self) -> None:
        self._group.level()
        self._lines += [log_of(node) for node in self._group.nodes.values() if node.up]

    def _send(self, number: str, *text: str) -> None:
        node = self._node(number)
        node.append(" ".join(text).encode())
        node.flush()
        self._lines.append(log_of(node))

    def _kill(self, number: str) -> None:
        self._node(number).up = False

    def _start(self, number: str) -> None:
        self._node(number).restart()
        self._seen.pop(int(number), None)

    def _cut(self, one: str, other: str) -> None:
        self._group.cuts.add(frozenset((int(one), int(other))))

    def _isolate(self, number: str) -> None:
        self._group.isolate(int(number))

    def _rejoin(self, number: str) -> None:
        self._group.rejoin(int(number))

    def _resign(self, number: str) -> None:
        node = self._node(number)
        self._group.sent(node, node.elections.resign("an operator asks it to", node.now_s))

    def _transfer(self, target: str) -> None:
        leader = self._leader
        try:
            leader.elections.transfer(int(target), leader.now_s)
        except RoleRefused as refused:
            self._lines.append(f"refused: {refused}")
        leader.tick()

    def _add(self, number: str) -> None:
        self._change("add_voter", number)

    def _remove(self, number: str) -> None:
        self._change("remove_voter", number)

    def _change(self, verb: str, number: str) -> None:
        leader = self._leader
        try:
            getattr(leader.elections, verb)(int(number), leader.now_s, FIRST_MS)
        except RoleRefused as refused:
            self._lines.append(f"refused: {refused}")
            return
        leader.flush()
        self._lines.append(f"voters at {leader.id}: {' '.join(map(str, leader.replica.members.voters))}")

    def _introduce(self, number: str) -> None:
        leader = self._leader
        self._node(number).step(
            BeginEpoch(group="group-a", leader=leader.id, epoch=leader.replica.epoch, address=leader.settings.address)
        )

    def _status(self) -> None:
        self._lines += [log_of(node) for node in self._group.nodes.values() if node.up]


def log_of(node: Node) -> str:
    epochs = " ".join(f"{epoch}@{start}" for epoch, start in node.replica.epochs.entries) or "none"
    return (
        f"{node.id}: {node.state.value} in epoch {node.replica.epoch}, epochs {epochs},"
        f" end {node.store.end_offset}, confirmed {node.replica.confirm_offset}"
    )


def pulled(decision: PullDecision | None, node: Node, end_offset: int) -> str:
    if decision is None:
        return "no one to pull from"
    if isinstance(decision, SendBytes):
        return f"pulls from {end_offset}, holds up to {node.store.end_offset}"
    if isinstance(decision, Diverged):
        found = decision.divergence
        return (
            f"pulls from {end_offset}; the leader's epoch {found.epoch} ends at {found.end_offset}:"
            f" cuts to {node.store.end_offset}"
        )
    if isinstance(decision, Fenced):
        return f"fenced: {decision.reason}"
    return f"too old: the leader's log begins at {decision.min_offset}"


def main() -> int:
    for path in transcripts():
        text = path.read_text("utf-8")
        path.write_text(replayed(text), "utf-8")
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
