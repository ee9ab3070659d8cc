"""User accounts: that of the caller of `sudo`, and those to which root may change."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

NOBODY = 65534
"""User and group without rights, if the system has no user `nobody`. Source: Linux,
DEFAULT_OVERFLOWUID.
"""
_NUMBER = re.compile(r"[0-9]{1,10}")
_MOST = 0xFFFFFFFE
"""Largest number of a user or group; the next one, -1, means none. Source: setuid(2)."""


class Account(NamedTuple):
    """A user of this machine."""

    user: int
    group: int
    groups: tuple[int, ...] = ()
    """Its supplementary groups."""
    owns_files: bool = True
    """Whether files that are written belong to it instead of to root."""


def account_named(name: str) -> Account | None:
    """Return the account with a name or number; None if there is none."""
    try:
        row = pwd.getpwuid(int(name)) if _NUMBER.fullmatch(name) else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        return None
    return Account(row.pw_uid, row.pw_gid, tuple(os.getgrouplist(row.pw_name, row.pw_gid)))


def is_private(group: int) -> bool:
    """Return whether this user is the only member of a group of the same name."""
    try:
        name, row = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except (KeyError, OverflowError):
        return False
    return row.gr_name == name and {*row.gr_mem} <= {name}


def caller(environ: Mapping[str, str] | None = None) -> Account | None:
    """Return the account of the caller of `sudo`; None without `sudo`, if root called it, and if
    this process is not root.
    """
    environ = os.environ if environ is None else environ
    user, group = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    if not (_NUMBER.fullmatch(user) and _NUMBER.fullmatch(group)) or os.getuid() != 0:
        return None
    if not 0 < int(user) <= _MOST or int(group) > _MOST:
        return None
    try:
        groups = os.getgrouplist(pwd.getpwuid(int(user)).pw_name, int(group))
    except (KeyError, OverflowError):
        groups = [int(group)]
    return Account(int(user), int(group), tuple(groups))


@contextmanager
def as_caller() -> Iterator[None]:
    """Within the block, have the rights of the caller of `sudo`, so that root does not read files
    for them that they may not read. Only while the process has a single thread.
    """
    account = caller()
    if account is None or os.geteuid() != 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    try:
        os.setgroups(account.groups)
        os.setegid(account.group)
        os.seteuid(account.user)
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def home_of_caller() -> str | None:
    """Return the home folder of the caller of `sudo`; None without one."""
    account = caller()
    try:
        return None if account is None else pwd.getpwuid(account.user).pw_dir
    except KeyError:
        return None
