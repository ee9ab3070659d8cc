"""Flows that do not prove themselves at once: looked at again, or known by their server."""

from __future__ import annotations

from netdissect.model.packets import PacketKind, reverse_key
from netdissect.model.segments import TcpSegment
from netdissect.pipeline import Options, Pipeline, recogniser, servers, table
from netdissect.pipeline.handlers import name_of
from netdissect.pipeline.servers import SERVER_SCORE

SECOND = 1_000_000_000
CONNECT, WELCOME, ACK = b"\x02", bytes.fromhex("1800100000"), bytes.fromhex("1100100000")
HANDSHAKE = [(0, CONNECT), (1, WELCOME), (0, ACK), (0, WELCOME)]
ASKS, ANSWERS = bytes.fromhex("04f0ff0f"), bytes.fromhex("0400")
"""Heartbeats of a client, which states its round trip, and of a server."""
NOISE = b"\xee" * 30


def key(client, server=7777, host=1):
    ports = client.to_bytes(2, "big") + server.to_bytes(2, "big")
    return bytes([10, 0, 0, 9, 10, 1, 1, host]) + ports


def flow(rows, of, start=1):
    """Return packets of (direction, payload) rows, 10 ms apart."""
    return [
        (PacketKind.UDP, start + n, (start + n) * SECOND // 100, reverse_key(of) if d else of,
         payload, None, ())
        for n, (d, payload) in enumerate(rows)
    ]  # fmt: skip


def run(made, **options):
    pipeline = Pipeline(Options(strict=True, **options))
    pipeline.run(made)
    pipeline.finish()
    return pipeline


def reliable(number, direction=0):
    """Return a reliable message of 2.2 and its acknowledgement."""
    message = (7 | number << 4 | 5 << 20 | 7 << 28).to_bytes(5, "little")
    ack = (1 | number << 4 | 0xFFFF << 20).to_bytes(5, "little")
    return [(direction, message), (1 - direction, ack)]


def talk(first, count):
    return [row for number in range(first, first + count) for row in reliable(number)]


def test_what_does_not_prove_itself_in_16_datagrams_is_judged_with_more() -> None:
    burst = [row[0] for row in (reliable(n) for n in range(0x141, 0x159))]
    acks = [row[1] for row in (reliable(n) for n in range(0x141, 0x159))]
    (report,) = run(flow([*burst, *acks], key(50000))).reports
    assert report.dialects == ("riptide-2.1/2.2", "riptide-2.2")
    assert report.datagrams == (24, 24)


def test_what_was_hardly_claimed_makes_no_server_known() -> None:
    """Connects that nobody answered: whoever was to is no server of anything for certain."""
    knocks = [
        (PacketKind.UDP, n, n * SECOND, key(50000, server=5300), CONNECT, None, ()) for n in (1, 2, 3)
    ]
    noise = flow([(0, NOISE)], key(50001, server=5300), start=400)
    (report,) = run([*knocks, *noise]).reports
    assert report.datagrams == (3, 0)


def test_a_flow_of_nobody_is_looked_at_again() -> None:
    before = [(n & 1, NOISE) for n in range(64 + recogniser.LOOK_AGAIN)]
    pipeline = run(flow([*before, *talk(0x141, 40)], key(50000)))
    (report,) = pipeline.reports
    assert report.datagrams == (40, 40)
    assert pipeline.other_datagrams == len(before)


def test_looks_become_rarer() -> None:
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(flow([(n & 1, NOISE) for n in range(64 * 300)], key(50000)))
    assert pipeline.other_datagrams == 64 * 300
    (stranger,) = {id(one): one for one in pipeline.recogniser._handlers.by_key.values()}.values()
    assert stranger._looks == 3


def test_the_server_without_a_new_flow_for_longest_is_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(servers, "MAX_SERVERS", 2)
    made = []
    for client, server in enumerate((7001, 7002, 7001, 7003), 50000):
        made += flow(HANDSHAKE, key(client, server), start=len(made) + 1)
    pipeline = run(made)
    recalls = pipeline.recogniser.servers.recalls
    assert [port for port in (7001, 7002, 7003) if recalls(key(1, port))] == [7001, 7003]
    assert pipeline.limits_hit == {"MAX_SERVERS": 1}
    assert len(pipeline.recogniser.servers._spoken) == 2


def test_a_flow_to_a_known_server_is_its_protocols() -> None:
    odd = flow([(0, NOISE), (0, b"\x07\x01")], key(50001), start=50)
    other = flow([(0, NOISE)], key(50002, host=2), start=60)
    pipeline = run([*flow(HANDSHAKE, key(50000)), *odd, *other])
    first, second = pipeline.reports
    assert (second.client, second.server) == ("10.0.0.9:50001", first.server)
    assert second.datagrams == (2, 0)
    assert second.explain == (
        f"score {SERVER_SCORE}", "its server speaks this protocol on other connections",
    )  # fmt: skip
    assert pipeline.other_datagrams == 1


def test_a_server_that_is_known_only_later_counts_as_well() -> None:
    odd = flow([(0, NOISE)], key(50001))
    pipeline = run([*odd, *flow(HANDSHAKE, key(50000), start=50)])
    assert sorted(report.client for report in pipeline.reports) == [
        "10.0.0.9:50000", "10.0.0.9:50001",
    ]  # fmt: skip
    assert not pipeline.other_datagrams


def test_a_flow_that_is_looked_at_again_may_have_no_further_packet() -> None:
    """Its server became known in the meantime."""
    count = 64 + recogniser.LOOK_AGAIN
    strange = flow([(n & 1, NOISE) for n in range(count)], key(50001))
    pipeline = run([*strange, *flow(HANDSHAKE, key(50000), start=count + 1)])
    (report,) = pipeline.reports
    assert report.client == "10.0.0.9:50000"
    assert pipeline.other_datagrams == count


def test_a_guess_of_the_server_makes_none_known() -> None:
    # Between two high ports nothing says who serves: the first to send counts as the client.
    pipeline = run([
        *flow(talk(0x141, 20), key(50000, 50001)),
        *flow([(0, NOISE)], key(50002, 50001), start=90),
    ])  # fmt: skip
    assert len(pipeline.reports) == 1
    assert pipeline.reports[0].roles_from == "first_frame"


def test_octets_held_are_bounded_in_all(monkeypatch) -> None:
    monkeypatch.setattr(recogniser, "MAX_SAMPLED_OCTETS", 10_000)
    made = [
        packet
        for n in range(200)
        for packet in flow([(0, bytes([0xEE]) * 500)] * 2, key(40000 + n), start=1 + 2 * n)
    ]
    pipeline = Pipeline(Options(strict=True))
    for packet in made:
        pipeline.feed(packet)
        assert pipeline.recogniser._octets <= 10_000
    pipeline.finish()
    assert pipeline.limits_hit["MAX_SAMPLED_OCTETS"] > 50
    assert pipeline.other_datagrams == 400
    assert not pipeline.recogniser._octets


def test_segments_without_data_are_held_within_bounds(monkeypatch) -> None:
    """SYNs again and again on few addresses: what they take is not their payload."""
    monkeypatch.setattr(recogniser, "MAX_SAMPLED_OCTETS", 100_000)
    pipeline = Pipeline(Options(strict=True), shares=2)
    most = 0
    for n in range(2_000):
        ports = key(40_000 + n % 10)
        syn = TcpSegment(7, 0, 2, 65_535, 0, n, None, (), 0, 1, (), False)
        pipeline.feed((PacketKind.TCP, n + 1, n, ports, b"", syn, ()))
        held = [pipeline.recogniser.sampled(name_of("tcp", key(40_000 + i))) for i in range(10)]
        most = max(most, sum(len(flow.packets) for flow in held if flow is not None))
    assert most * recogniser.PACKET_OCTETS <= 50_000
    assert pipeline.limits_hit["MAX_SAMPLED_OCTETS"] > 5
    pipeline.finish()
    assert not pipeline.recogniser._octets


def test_a_flow_whose_roles_only_a_heartbeat_shows_waits_for_one() -> None:
    """Joined in the middle, at more than 64 datagrams a second; the server's comes first."""
    rows = [row for number in range(0x141, 0x141 + 60) for row in reliable(number, 1)]
    for at, heartbeat in ((101, (0, ASKS)), (103, (1, ANSWERS))):
        rows.insert(at, heartbeat)
    (report,) = run(flow(rows, key(50000, 50001))).reports
    assert (report.client, report.roles_from) == ("10.0.0.9:50000", "protocol")
    assert report.datagrams == (61, 61)


def test_a_flow_without_heartbeats_waits_no_longer_than_one_could_take() -> None:
    pipeline = Pipeline(Options(strict=True))
    rows = [row for number in range(0x141, 0x141 + 90) for row in reliable(number, 1)]
    made = flow(rows, key(50000, 50001))
    pipeline.run(made)
    (connection,) = pipeline.tracked()
    assert sum(lane.datagrams for lane in connection.lanes) == 180


def test_of_a_full_table_many_leave_at_once(monkeypatch) -> None:
    """Who looks for the oldest one at each new one walks over all of them each time."""
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 40)
    monkeypatch.setattr(recogniser, "MAX_OTHER", 60)
    monkeypatch.setattr(table, "MAX_CONNECTIONS", 30)
    made = [packet for client in range(31) for packet in flow(HANDSHAKE, key(50000 + client), 4 * client + 1)]
    pipeline = run(made)
    assert pipeline.limits_hit["MAX_CONNECTIONS"] == 3
    noise = [packet for client in range(162) for packet in flow([(0, NOISE)], key(50000 + client), client + 1)]
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(noise[:41])
    assert (pipeline.limits_hit, len(pipeline.recogniser._lone)) == ({"MAX_SAMPLED": 4}, 37)
    pipeline.run(noise[41:])
    assert pipeline.limits_hit["MAX_OTHER"] == 6


def test_quiet_flows_are_looked_for_the_less_often_the_more_there_are(monkeypatch) -> None:
    pipeline = Pipeline(Options(strict=True))
    monkeypatch.setattr(recogniser, "MAX_QUIET_SAMPLED", 50)
    pipeline.run([packet for client in range(400) for packet in flow([(0, NOISE)], key(50000 + client), client + 1)])
    told = pipeline.recogniser
    looked = set()
    for frame in range(1000, 2000):
        told.forget_quiet(frame)
        looked.add(told._looked_at)
    assert len(told._lone) == 400
    assert 3 < len(looked) <= 11
