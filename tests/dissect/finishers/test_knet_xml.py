"""kNet's XML message descriptions: read safely, and decoded bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.finishers.knet_xml import MAX_ELEMENTS, XmlSchemaError, xml_schema
from netdissect.dissect.schema import SchemaError, load_schema

FORMATS = {".xml": xml_schema}
STOPPED = """<messages>
  <message id="212" name="ObjectsStopped" reliable="true" inOrder="true" priority="100">
    <bit name="all" />
    <struct name="ObjectInfo" dynamicCount="7">
      <u16 name="position" count="3" />
      <s8 name="rotation" />
    </struct>
    <string name="by" />
  </message>
</messages>
"""


def test_a_description_decodes_a_payload(tmp_path: Path) -> None:
    path = tmp_path / "protocol.xml"
    path.write_text(STOPPED)
    schema = load_schema(path, FORMATS)
    objects = bytes([1 | 2 << 1]) + bytes.fromhex("0100 0200 0300 ff" + "0400 0500 0600 02")
    content = b"\xd4\x01" + objects + b"\x02hi"
    data = b"\x01\0\0" + bytes([len(content), 0]) + content
    tree = dissect("knet", data, Request("knet-2.x", 0, schema=schema), strict=True)
    (message,) = tree.fields["messages"]
    assert message["decoded"] == {
        "all": 1,
        "ObjectInfo": [
            {"position": [1, 2, 3], "rotation": -1},
            {"position": [4, 5, 6], "rotation": 2},
        ],
        "by": "hi",
    }
    assert tree.annotations == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not XML"),
        ("<a><b></a>", "not XML"),
        ("<messages/>", "no <message>"),
        ("<m><message name='x'/></m>", "needs id"),
        ("<m><message id='-1'/></m>", "needs id"),
        ("<m><message id='1'><vector name='x'/></message></m>", "not a type"),
        ("<m><message id='1'><u8 count='99999999999'/></message></m>", "needs count"),
        ("<m><message id='1'><u8 dynamicCount='99'/></message></m>", "needs dynamicCount"),
        ("<!DOCTYPE m [<!ENTITY a 'b'>]><m>&a;</m>", "document types"),
        ("<!DOCTYPE m SYSTEM 'file:///etc/passwd'><m/>", "document types"),
        ("<m>" + "<struct>" * 100, "nested too deeply"),
        ("<m>" + "<u8/>" * (MAX_ELEMENTS + 1) + "</m>", "too many"),
    ],
)
def test_what_is_no_description_is_refused(text: str, says: str) -> None:
    with pytest.raises(XmlSchemaError, match=says):
        xml_schema(text)


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    bomb = "<!DOCTYPE m [<!ENTITY a 'x'>" + "".join(
        f"<!ENTITY a{i} '{'&a' + (str(i - 1) if i else '') + ';'}'>" for i in range(1, 30)
    )
    path = tmp_path / "bomb.xml"
    path.write_text(bomb + "]><m>&a29;</m>")
    with pytest.raises(SchemaError, match="document types"):
        load_schema(path, FORMATS)
