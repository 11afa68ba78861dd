"""A request that is not granted."""


class Refusal(Exception):
    """Carries the code and the remark of the answer; the remark tells the cause and the way out."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
