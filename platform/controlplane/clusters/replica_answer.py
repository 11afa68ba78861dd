"""What a replica said to a request about its role: shared by who asks over sockets and by who decides without them."""

from dataclasses import dataclass

from mqwire.bodies import ReplicaStatus


@dataclass(frozen=True, slots=True)
class Answer:
    """What a replica said: its status, or why there is none. `refused` says that it did answer, with an error;
    `refused_for_good`, that asking again later changes nothing.
    """

    status: ReplicaStatus | None = None
    error: str = ""
    refused: bool = False
    refused_for_good: bool = False

    @property
    def came(self) -> bool:
        """Whether the replica said anything."""
        return self.refused or self.status is not None
