import time

import pytest

from netdissect.model.files import parse_toml

LONG = ".".join("a" * 66)


@pytest.mark.parametrize(
    "text",
    [
        f"x = [{', '.join(f'{n / 10}' for n in range(100))}]",
        f"x = [{', '.join(repr(f'b.{n}') for n in range(100))}]",
        f"x = '{LONG}'",
        f'x = "it\\"s {LONG}"',
        f'x = """\n"quoted" {LONG}\n"""',
        f"x = '''\nit's {LONG}'''",
        f"x = 1 # it's {LONG}",
        ".".join("a" * 64) + " = 1",
    ],
)
def test_many_dots_are_no_long_key(text):
    assert parse_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"x = {{ {LONG} = 1 }}",
        f"x = 'it' # \"\ny = \"'\"\n{LONG} = '#'",
        " . ".join(["'a.b'", '"c#\\"d"'] * 33) + " = 1",
    ],
)
def test_long_keys_are_refused(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(text)


@pytest.mark.parametrize("part", ['"', '"""\\', "'''", "'", "a.", "a .", '""."".', "#'", '\\"'])
def test_the_look_for_long_keys_takes_linear_time(part):
    def seconds(count):
        text = "x = \0" + part * count
        began = time.process_time()
        with pytest.raises(ValueError, match=r"."):
            parse_toml(text)
        return time.process_time() - began

    assert seconds(400_000 // len(part)) < 20 * max(seconds(40_000 // len(part)), 0.005)
