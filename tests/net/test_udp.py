"""The network layer on loopback: real sockets in this process."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ordercast.net import udp, udp_sockets
from ordercast.net.addresses import Address, AddressError, NetworkError, group_endpoint
from ordercast.net.udp import DRAIN_BYTES_MAX, DRAIN_TRAINS_MAX, Train, UdpNetwork

DEADLINE_S = 20.0
# Loopback addresses of this process alone: test processes that run side by side do not meet.
HOST = f"127.{os.getpid() >> 8 & 127}.{os.getpid() & 255}.1"
OTHER_HOST = HOST[:-1] + "2"

Open = Callable[..., UdpNetwork]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Makes networks at HOST in group "g", and closes them."""
    networks: list[UdpNetwork] = []

    def make(group: str = "g", address: str = HOST, **options: Any) -> UdpNetwork:
        networks.append(UdpNetwork(group, address, **options))
        return networks[-1]

    yield make
    for network in networks:
        network.close()


def gather(network: UdpNetwork, total_bytes: int) -> list[Train]:
    """What arrives at the data socket until there are so many bytes."""
    return _gather(network, 0, network.drain, total_bytes)


def gather_unicasts(network: UdpNetwork, total_bytes: int) -> list[Train]:
    return _gather(network, 1, network.drain_unicast, total_bytes)


def _gather(network: UdpNetwork, which: int, drain: Callable[[], list[Train]], total_bytes: int) -> list[Train]:
    ready = select.poll()
    ready.register(network.filenos()[which], select.POLLIN)
    until = time.monotonic() + DEADLINE_S
    got: list[Train] = []
    while (missing := total_bytes - sum(len(data) for data, _, _ in got)) > 0:
        assert time.monotonic() < until, f"{missing} of {total_bytes} bytes have not arrived"
        ready.poll(100)
        got += drain()
    return got


def packets(trains: list[Train]) -> list[bytes]:
    return [data[at : at + segment] for data, segment, _ in trains for at in range(0, len(data), segment)]


def train_of(count: int, segment: int, last: int | None = None) -> bytes:
    """Packets that are told apart by their first bytes."""
    data = b"".join(n.to_bytes(4, "big").ljust(segment, b"%c" % (n % 251)) for n in range(count))
    return data if last is None else data[: (count - 1) * segment + last]


def free_port(host: str = HOST) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def refuse_calls(
    monkeypatch: pytest.MonkeyPatch, code: int, times: int = 1 << 30, *, trains_only: bool = False
) -> None:
    """Let the next calls that send fail."""
    left = times
    sendmsg, sendto = socket.socket.sendmsg, socket.socket.sendto

    def failing(sock: socket.socket, buffers: Any, ancillary: Any = (), flags: int = 0, to: Any = None) -> int:
        nonlocal left
        if left > 0 and (ancillary or not trains_only):
            left -= 1
            raise OSError(code, os.strerror(code))
        return sendmsg(sock, buffers, ancillary, flags, to)

    def failing_single(sock: socket.socket, data: bytes, to: Address) -> int:
        nonlocal left
        if left > 0 and not trains_only:
            left -= 1
            raise OSError(code, os.strerror(code))
        return sendto(sock, data, to)

    monkeypatch.setattr(socket.socket, "sendmsg", failing)
    monkeypatch.setattr(socket.socket, "sendto", failing_single)


# Multicast


def test_a_train_arrives_as_a_train_with_its_segment(opened: Open) -> None:
    sender, receiver = opened(), opened()
    data = train_of(46, 1400, last=77)
    sender.broadcast(data, 1400)
    assert gather(receiver, len(data)) == [(data, 1400, sender.own)]


def test_long_trains_are_cut_into_calls_of_whole_packets(opened: Open) -> None:
    sender, receiver = opened(), opened()
    for segment, count in ((1400, 200), (100, 500), (30_000, 9), (40_000, 3)):
        data = train_of(count, segment, last=9)
        sender.broadcast(data, segment)
        got = gather(receiver, len(data))
        assert b"".join(train for train, _, _ in got) == data
        assert all(len(train) <= udp.CALL_BYTES_MAX for train, _, _ in got)
        assert all(-(-len(train) // size) <= udp.CALL_SEGMENTS_MAX for train, size, _ in got)
        assert packets(got) == packets([(data, segment, sender.own)])


def test_one_packet_is_a_train_of_its_own_length(opened: Open) -> None:
    sender, receiver = opened(), opened()
    sender.broadcast(b"short", 1400)
    assert gather(receiver, 5) == [(b"short", 5, sender.own)]


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("receives", [True, False])
def test_without_acceleration_the_same_packets_arrive(opened: Open, sends: bool, receives: bool) -> None:
    sender, receiver = opened(accelerated=sends), opened(accelerated=receives)
    assert (sender.accelerated, receiver.accelerated) == (sends, receives)
    data = train_of(150, 1400, last=300)
    sender.broadcast(data, 1400)
    got = gather(receiver, len(data))
    assert packets(got) == packets([(data, 1400, sender.own)])
    assert {source for _, _, source in got} == {sender.own}
    assert receiver.receive_drops == 0


def test_all_members_on_a_host_hear_each_other_and_not_themselves(opened: Open) -> None:
    members = [opened() for _ in range(3)]
    for n, member in enumerate(members):
        member.broadcast(b"%d" % n * 3000, 1000)
    for member in members:
        got = gather(member, 6000)
        assert {source for _, _, source in got} == {other.own for other in members} - {member.own}


@pytest.mark.parametrize("accelerated", [True, False])
def test_own_multicasts_count_as_no_drops(opened: Open, accelerated: bool) -> None:
    member, other = opened(accelerated=accelerated), opened()
    data = train_of(300, 1400)
    member.broadcast(data, 1400)
    gather(other, len(data))
    assert member.drain() == []
    assert member.receive_drops == 0


def test_own_multicasts_are_dropped_where_filters_are_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_sockets, "refuse_source", lambda _sock, _source: False)
    member, other = opened(), opened()
    member.broadcast(b"mine", 4)
    other.broadcast(b"theirs", 6)
    assert gather(member, 6) == [(b"theirs", 6, other.own)]
    assert member.receive_drops == 0


def test_groups_do_not_hear_each_other(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = opened("orders"), opened("prices")
    here_too, elsewhere_too = opened("orders"), opened("prices")
    here.broadcast(b"for orders", 10)
    elsewhere.broadcast(b"for prices", 10)
    assert gather(elsewhere_too, 10) == [(b"for prices", 10, elsewhere.own)]
    assert gather(here_too, 10) == [(b"for orders", 10, here.own)]


def test_groups_at_one_port_do_not_hear_each_other(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints = {"a": ("239.192.3.1", free_port()), "b": ("239.192.3.2", 0)}
    endpoints["b"] = (endpoints["b"][0], endpoints["a"][1])
    monkeypatch.setattr(udp, "group_endpoint", lambda group, _address: endpoints[group])
    a, a_too, b, b_too = opened("a"), opened("a"), opened("b"), opened("b")
    a.broadcast(b"for a", 5)
    b.broadcast(b"for b", 5)
    assert gather(a_too, 5) == [(b"for a", 5, a.own)]
    assert gather(b_too, 5) == [(b"for b", 5, b.own)]


def test_two_loopback_addresses_are_two_networks(opened: Open) -> None:
    first, first_too = opened(), opened()
    second, second_too = opened(address=OTHER_HOST), opened(address=OTHER_HOST)
    first.broadcast(b"first", 5)
    second.broadcast(b"second", 6)
    assert gather(first_too, 5) == [(b"first", 5, first.own)]
    assert gather(second_too, 6) == [(b"second", 6, second.own)]


def test_unicasts_arrive_at_the_own_socket_only(opened: Open) -> None:
    one, other = opened(), opened()
    other.broadcast(b"data", 4)
    one.unicast(other.own, b"token")
    other.unicast(one.own, b"token back")
    assert gather_unicasts(other, 5) == [(b"token", 5, one.own)]
    assert gather_unicasts(one, 10) == [(b"token back", 10, other.own)]
    assert gather(one, 4) == [(b"data", 4, other.own)]


def test_empty_datagrams_are_ignored(opened: Open) -> None:
    sender, receiver = opened(), opened()
    sender.unicast(receiver.own, b"")
    sender.unicast(receiver.own, b"token")
    sender.unicast(receiver.data, b"")
    sender.broadcast(b"data", 4)
    assert gather_unicasts(receiver, 5) == [(b"token", 5, sender.own)]
    assert gather(receiver, 4) == [(b"data", 4, sender.own)]


def test_one_drain_is_bounded(opened: Open) -> None:
    sender, receiver = opened(), opened()
    for _ in range(3 * DRAIN_TRAINS_MAX):
        sender.broadcast(b"x" * 10, 10)
        sender.unicast(receiver.own, b"x" * 10)
    assert len(receiver.drain()) == DRAIN_TRAINS_MAX
    assert len(receiver.drain_unicast()) == DRAIN_TRAINS_MAX
    gather(receiver, 20 * DRAIN_TRAINS_MAX)
    sender.broadcast(train_of(3000, 1400), 1400)
    taken = sum(len(data) for data, _, _ in receiver.drain())
    assert DRAIN_BYTES_MAX <= taken < DRAIN_BYTES_MAX + udp.CALL_BYTES_MAX
    assert receiver.drain() != []


def test_closing_again_is_harmless_and_sending_afterwards_is_an_error() -> None:
    with UdpNetwork("g", HOST) as network:
        network.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        network.broadcast(b"x", 1)


# Buffers


@pytest.mark.parametrize(
    ("segment", "as_train"),
    [(8, False), (100, False), (1400, False), (1472, True), (1400, True), (3800, False), (7808, False), (8000, False)],
)
def test_the_receive_buffer_holds_the_window(opened: Open, segment: int, as_train: bool) -> None:
    receiver = opened(receive_buffer_bytes=1 << 18)
    sender = opened(accelerated=as_train)
    window = receiver.receive_window(segment)
    data = train_of(window, segment)
    # Thrice: what has been read counts against the buffer for a while.
    for _ in range(3):
        sender.broadcast(data, segment)
        assert len(packets(gather(receiver, len(data)))) == window
    assert receiver.receive_drops == 0


def test_what_the_kernel_has_no_room_for_is_counted(opened: Open) -> None:
    receiver, sender = opened(receive_buffer_bytes=1 << 16), opened()
    data = train_of(2000, 1400)
    sender.broadcast(data, 1400)
    assert receiver.receive_drops > 0


def test_the_window_follows_the_buffer_that_was_granted(opened: Open) -> None:
    small, large = opened(receive_buffer_bytes=1 << 18), opened(receive_buffer_bytes=1 << 20)
    assert 3 * small.receive_window(1400) < large.receive_window(1400) < 5 * small.receive_window(1400)
    assert small.receive_window(1400) > small.receive_window(9000) >= 1
    assert small.warnings == []


def test_a_system_that_caps_the_buffers_is_named_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown_option = 9999
    for name in ("RECEIVE_BUFFER", "SEND_BUFFER"):
        monkeypatch.setattr(udp, name, getattr(udp, name)._replace(force=unknown_option))
    network = opened(receive_buffer_bytes=1 << 30, send_buffer_bytes=1 << 30)
    receive, send = network.warnings
    assert "receive buffer" in receive
    assert "sysctl -w net.core.rmem_max=1073741824" in receive
    assert "sysctl -w net.core.wmem_max=1073741824" in send
    assert all("\n" not in line for line in network.warnings)


def test_a_system_without_trains_is_named_or_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "can_segment", lambda _sock: False)
    monkeypatch.setattr(udp, "join_trains", lambda _sock: False)
    network = opened()
    assert network.warnings == ["this system has no UDP_SEGMENT and no UDP_GRO: packets cost a call each"]
    assert not network.accelerated
    assert opened(accelerated=False).warnings == []
    with pytest.raises(NetworkError, match="no UDP_SEGMENT"):
        opened(accelerated=True)


# Peers


def test_broadcasts_go_to_every_peer_and_not_to_oneself(opened: Open) -> None:
    hosts = [HOST, OTHER_HOST, HOST[:-1] + "3"]
    peers = [f"{host}:{free_port(host)}" for host in hosts]
    members = [opened(address=host, peers=peers) for host in hosts]
    assert [f"{host}:{port}" for host, port in (member.data for member in members)] == peers
    data = train_of(46, 1400)
    members[0].broadcast(data, 1400)
    for other in members[1:]:
        assert gather(other, len(data)) == [(data, 1400, members[0].own)]
        other.unicast(members[0].own, b"token")
    assert {source for _, _, source in gather_unicasts(members[0], 10)} == {other.own for other in members[1:]}
    assert members[0].drain() == []


def test_peers_on_one_host_share_one_list(opened: Open) -> None:
    peers = [f"{HOST}:{port}" for port in sorted({free_port() for _ in range(8)})[:3]]
    members = [opened(peers=peers) for _ in peers]
    assert [f"{host}:{port}" for host, port in (member.data for member in members)] == peers
    for member in members:
        member.broadcast(b"x" * 10, 10)
    for member in members:
        sources = {source for _, _, source in gather(member, 20)}
        assert sources == {other.own for other in members} - {member.own}
    with pytest.raises(NetworkError, match="another program has port"):
        opened(peers=peers)


def test_the_address_may_name_the_port_of_this_process(opened: Open) -> None:
    one, other = sorted({free_port() for _ in range(8)})[:2]
    a = opened(address=f"{HOST}:{one}", peers=[f"{HOST}:{other}"])
    b = opened(address=f"{HOST}:{other}", peers=[f"{HOST}:{one}", f"{HOST}:{other}"])
    assert (a.peers, b.peers) == (((HOST, other),), ((HOST, one),))
    b.broadcast(b"hello", 5)
    assert gather(a, 5) == [(b"hello", 5, b.own)]


def test_the_default_port_of_peers_is_taken_by_one_process(opened: Open) -> None:
    network = opened(peers=[OTHER_HOST])
    assert (network.data, network.peers) == ((HOST, 7400), ((OTHER_HOST, 7400),))
    with pytest.raises(NetworkError, match=f"another program has port 7400 at {HOST}"):
        opened(peers=[OTHER_HOST])


def test_a_peer_that_is_not_there_is_no_error(opened: Open) -> None:
    network = opened(peers=[f"{OTHER_HOST}:{free_port(OTHER_HOST)}"])
    for _ in range(20):
        network.broadcast(train_of(5, 1400), 1400)
        network.unicast((OTHER_HOST, free_port(OTHER_HOST)), b"token")
    assert network.drain() == network.drain_unicast() == []


# What cannot be used


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"203\.0\.113\.9 is not an address of this machine"):
        UdpNetwork("g", "203.0.113.9")


def test_a_port_belongs_to_peers_mode() -> None:
    with pytest.raises(AddressError, match="a port belongs to peers mode only"):
        UdpNetwork("g", f"{HOST}:7400")


def test_a_group_whose_port_another_program_has_is_refused(opened: Open) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
        greedy.bind(group_endpoint("taken", HOST))
        with pytest.raises(NetworkError, match="another program has the group's port") as caught:
            opened("taken")
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize(
    ("code", "text"), [(errno.EACCES, "no permission for port 80 "), (errno.ENOMEM, "port 80 at .* cannot be used: ")]
)
def test_a_port_that_may_not_be_used_is_refused(monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> None:
    bind = socket.socket.bind

    def refusing(sock: socket.socket, to: Address) -> None:
        if to[1] == 80:
            raise OSError(code, os.strerror(code))
        bind(sock, to)

    monkeypatch.setattr(socket.socket, "bind", refusing)
    with pytest.raises(NetworkError, match=text):
        UdpNetwork("g", HOST, peers=[f"{HOST}:80"])


def test_an_interface_that_cannot_join_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setsockopt = socket.socket.setsockopt

    def refusing(sock: socket.socket, level: int, option: int, value: Any) -> None:
        if (level, option) == (socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        setsockopt(sock, level, option, value)

    monkeypatch.setattr(socket.socket, "setsockopt", refusing)
    with pytest.raises(NetworkError, match=f"the interface of {HOST} cannot join the multicast group"):
        UdpNetwork("g", HOST)


# What happens to packets on their way


def test_a_full_send_buffer_is_waited_for(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "SEND_WAIT_S", DEADLINE_S)
    sender, receiver = opened(), opened()
    data = train_of(100, 1400)
    for code in (errno.EAGAIN, errno.ENOBUFS):
        with monkeypatch.context() as patch:
            refuse_calls(patch, code, times=3)
            sender.broadcast(data, 1400)
            sender.unicast(receiver.own, b"token")
        assert packets(gather(receiver, len(data))) == packets([(data, 1400, sender.own)])
        assert gather_unicasts(receiver, 5) == [(b"token", 5, sender.own)]
    assert sender.send_drops == 0


def test_a_send_buffer_that_stays_full_costs_counted_packets(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = opened()
    refuse_calls(monkeypatch, errno.EAGAIN)
    begun = time.monotonic()
    sender.broadcast(train_of(460, 1400), 1400)
    sender.unicast(sender.own, b"token")
    assert time.monotonic() - begun < DEADLINE_S
    assert sender.send_drops == 461


@pytest.mark.parametrize("code", [errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM, errno.ENODEV])
def test_a_network_that_is_away_is_counted_and_comes_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sender, receiver = opened(), opened()
    with monkeypatch.context() as patch:
        refuse_calls(patch, code)
        for _ in range(3):
            sender.broadcast(train_of(46, 1400), 1400)
        sender.unicast(receiver.own, b"token")
    assert sender.losses.unreachable == 3 * 46 + 1
    assert len(sender.warnings) == 2, "once for the group, once for the unicast"
    receiver.broadcast(b"while away", 10)
    for _ in range(4):
        sender.broadcast(b"back", 4)
    receiver.broadcast(b"and here", 8)
    assert packets(gather(receiver, 16)) == [b"back"] * 4
    assert packets(gather(sender, 18)) == [b"while away", b"and here"]


def test_a_refusal_by_a_peer_is_counted(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = opened(), opened()
    with monkeypatch.context() as patch:
        refuse_calls(patch, errno.ECONNREFUSED, times=1)
        sender.unicast(receiver.own, b"lost")
    sender.unicast(receiver.own, b"token")
    assert gather_unicasts(receiver, 5) == [(b"token", 5, sender.own)]
    assert sender.losses.refused == 1
    assert sender.warnings == []


def test_an_error_that_waits_at_a_socket_does_not_end_a_drain(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = opened(), opened()
    sender.broadcast(b"data", 4)
    sender.unicast(receiver.own, b"token")
    waiting = [errno.ECONNREFUSED, errno.EHOSTUNREACH]
    methods = {name: getattr(socket.socket, name) for name in ("recvmsg_into", "recvfrom_into")}

    def failing(name: str) -> Callable[..., Any]:
        def receive(sock: socket.socket, *arguments: Any) -> Any:
            if waiting:
                raise OSError(waiting.pop(), "reported by ICMP")
            return methods[name](sock, *arguments)

        return receive

    for name in methods:
        monkeypatch.setattr(socket.socket, name, failing(name))
    assert packets(gather(receiver, 4)) == [b"data"]
    waiting.append(errno.ECONNREFUSED)
    assert packets(gather_unicasts(receiver, 5)) == [b"token"]


def test_packets_that_no_datagram_holds_are_counted_with_one_warning(opened: Open) -> None:
    sender, receiver = opened(), opened()
    for _ in range(2):
        sender.broadcast(bytes(70_000), 70_000)
    sender.broadcast(b"fits", 4)
    assert gather(receiver, 4) == [(b"fits", 4, sender.own)]
    assert sender.losses.too_large == 2
    assert sender.warnings == ["packets of 70000 bytes are too large for the interface lo"]


def test_an_interface_that_cannot_cut_trains_gets_packets(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = opened(), opened()
    data = train_of(100, 1400, last=5)
    refuse_calls(monkeypatch, errno.EIO, trains_only=True)
    sender.broadcast(data, 1400)
    sender.broadcast(data, 1400)
    assert packets(gather(receiver, 2 * len(data))) == 2 * packets([(data, 1400, sender.own)])
    assert sender.warnings == ["the interface lo cannot cut trains into packets: packets cost a call each"]
    assert not sender.accelerated
