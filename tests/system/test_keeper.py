"""What runs under another account has the rights of that account."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from netdissect.system import keeper

CAT = shutil.which("cat")


@pytest.mark.skipif(os.geteuid() != 0 or CAT is None, reason="only root gives up rights")
@pytest.mark.parametrize("more", ["", ",12"])
def test_a_program_is_in_the_groups_of_its_account_only(more: str) -> None:
    before = os.getgroups()
    os.setgroups([0, 6])
    try:
        with subprocess.Popen(
            [sys.executable, keeper.__file__, "--as", f"65534:65533{more}", str(CAT), "/proc/self/status"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            rows = dict(line.split(":", 1) for line in process.stdout)
    finally:
        os.setgroups(before)
    assert process.returncode == 0
    assert rows["Groups"].split() == more[1:].split()
    assert (set(rows["Uid"].split()), set(rows["Gid"].split())) == ({"65534"}, {"65533"})
