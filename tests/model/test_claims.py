"""What recognition says goes from process to process."""

import pickle
from dataclasses import replace

from netdissect.model.claims import Claim


def test_a_claim_is_the_same_in_another_process() -> None:
    claim = Claim("knet", 70, ("knet-2.0", None), 0, "handshake", ("said so",), (False, True))
    for value in (claim, replace(claim, forced=True, waits=True, attempt=True)):
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own bytes
