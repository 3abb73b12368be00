"""The network layer between hosts with MTU 1500: network namespaces on one switch; needs root.

A socket belongs to the namespace in which it was made, so all members of a test live in this process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hosts import Host, Hosts, make_hosts, require_namespaces
from test_udp import gather, gather_unicasts, packets, train_of

from ordercast.net.addresses import NetworkError
from ordercast.net.interfaces import interface_of
from ordercast.net.udp import UdpNetwork

Open = Callable[..., UdpNetwork]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    require_namespaces()
    with make_hosts(3, networks=2) as made:
        yield made


@pytest.fixture
def opened(hosts: Hosts) -> Iterator[Open]:
    """Makes networks on hosts, at their first address unless another one is given."""
    with ExitStack() as stack:

        def make(host: Host, address: str | None = None, **options: Any) -> UdpNetwork:
            with host.inside():
                return stack.enter_context(UdpNetwork("g", address or host.address, **options))

        yield make


def test_trains_reach_other_hosts_as_trains(hosts: Hosts, opened: Open) -> None:
    sender, receiver, third = (opened(host) for host in hosts)
    assert sender.packet_bytes_max == 1472
    data = train_of(44, sender.packet_bytes_max, last=10)
    sender.broadcast(data, sender.packet_bytes_max)
    for member in (receiver, third):
        assert gather(member, len(data)) == [(data, 1472, sender.own)]
    sender.broadcast(train_of(440, 1400), 1400)
    assert packets(gather(receiver, 440 * 1400)) == packets([(train_of(440, 1400), 1400, sender.own)])
    receiver.unicast(sender.own, b"token")
    assert gather_unicasts(sender, 5) == [(b"token", 5, receiver.own)]
    assert sender.drain() == []
    assert [member.receive_drops for member in (sender, receiver, third)] == [0, 0, 0]


def test_the_host_that_sends_is_heard_by_its_other_processes(hosts: Hosts, opened: Open) -> None:
    sender, beside, elsewhere = opened(hosts[0]), opened(hosts[0]), opened(hosts[1])
    data = train_of(44, 1400)
    sender.broadcast(data, 1400)
    for member in (beside, elsewhere):
        assert gather(member, len(data)) == [(data, 1400, sender.own)]
    assert sender.drain() == []


def test_loopback_works_on_a_host_of_its_own(hosts: Hosts, opened: Open) -> None:
    one, other = opened(hosts[0], "127.0.0.1"), opened(hosts[0], "127.0.0.1")
    foreign = opened(hosts[1], "127.0.0.1")
    one.broadcast(b"here", 4)
    foreign.broadcast(b"there", 5)
    assert gather(other, 4) == [(b"here", 4, one.own)]


def test_redundant_networks_do_not_mix(hosts: Hosts, opened: Open) -> None:
    first, second = (opened(hosts[0], address) for address in hosts[0].addresses)
    first_too, second_too = (opened(hosts[1], address) for address in hosts[1].addresses)
    first.broadcast(b"first", 5)
    second.broadcast(b"second", 6)
    assert gather(first_too, 5) == [(b"first", 5, first.own)]
    assert gather(second_too, 6) == [(b"second", 6, second.own)]


def test_trains_that_are_cut_where_they_leave(hosts: Hosts, opened: Open) -> None:
    hosts.single_packets()
    sender, receiver = opened(hosts[0]), opened(hosts[1])
    window = receiver.receive_window(1400)
    data = train_of(window, 1400, last=10)
    sender.broadcast(data, 1400)
    assert packets(gather(receiver, len(data))) == packets([(data, 1400, sender.own)])
    assert receiver.receive_drops == 0


def test_peers_on_hosts_use_the_default_port(hosts: Hosts, opened: Open) -> None:
    peers = [host.address for host in hosts]
    members = [opened(host, peers=peers) for host in hosts]
    data = train_of(44, 1400)
    members[1].broadcast(data, 1400)
    for member in (members[0], members[2]):
        assert gather(member, len(data)) == [(data, 1400, members[1].own)]
        member.unicast(members[1].own, b"token")
    assert len(gather_unicasts(members[1], 10)) == 2


def test_a_packet_that_has_become_too_large_for_the_interface_still_goes(hosts: Hosts, opened: Open) -> None:
    sender, receiver = opened(hosts[0]), opened(hosts[1])
    data = train_of(20, 3000)
    sender.broadcast(data, 3000)
    assert packets(gather(receiver, len(data))) == packets([(data, 3000, sender.own)])
    assert sender.warnings == []
    assert sender.accelerated


def test_a_firewall_that_refuses_is_counted(hosts: Hosts, opened: Open) -> None:
    sender, receiver = opened(hosts[0]), opened(hosts[1])
    rules = "table ip out { chain out { type filter hook output priority 0;\n ip daddr 239.0.0.0/8 drop\n }\n }\n"
    with subprocess.Popen(["ip", "netns", "exec", hosts[0].namespace, "nft", "-f", "-"], stdin=subprocess.PIPE) as nft:
        nft.communicate(rules.encode())
    sender.broadcast(train_of(44, 1400), 1400)
    assert sender.losses.unreachable == 44
    sender.unicast(receiver.own, b"token")
    assert gather_unicasts(receiver, 5) == [(b"token", 5, sender.own)]
    hosts[0].run("nft", "delete", "table", "ip", "out")
    sender.broadcast(b"back", 4)
    assert gather(receiver, 4) == [(b"back", 4, sender.own)]


def exchange(one: UdpNetwork, other: UdpNetwork) -> None:
    """Both hear each other's multicasts and unicasts."""
    for sender, receiver in ((one, other), (other, one)):
        sender.broadcast(train_of(44, 1400), 1400)
        assert len(packets(gather(receiver, 44 * 1400))) == 44
        sender.unicast(receiver.own, b"token")
        assert gather_unicasts(receiver, 5) == [(b"token", 5, sender.own)]


def test_a_link_that_goes_down_and_up(hosts: Hosts, opened: Open) -> None:
    one, other = opened(hosts[0]), opened(hosts[1])
    exchange(one, other)
    hosts[0].ip("link", "set", "eth0", "down")
    one.broadcast(train_of(44, 1400), 1400)
    one.unicast(other.own, b"lost")
    assert one.losses.unreachable == 45
    with hosts[0].inside(), pytest.raises(NetworkError, match=f"the interface eth0 of {one.own[0]} is down"):
        UdpNetwork("g", one.own[0])
    hosts[0].ip("link", "set", "eth0", "up")
    # The first broadcast finds that the network is back, and the group is joined again behind it.
    for _ in range(2):
        one.broadcast(b"back", 4)
    assert len(gather(other, 8)) == 2
    exchange(one, other)


def test_an_interface_that_is_made_anew(hosts: Hosts, opened: Open) -> None:
    one, other = opened(hosts[0]), opened(hosts[1])
    exchange(one, other)
    hosts[0].ip("link", "del", "eth0")
    for _ in range(3):
        one.broadcast(train_of(44, 1400), 1400)
    assert one.losses.unreachable == 3 * 44
    hosts.plug_in(hosts[0])
    # One broadcast may fail until the interface is named again, one finds that it works, then the group is joined.
    for _ in range(3):
        one.broadcast(b"back", 4)
    gather(other, 8)
    other.drain()
    exchange(one, other)


def test_a_slow_link_is_waited_for_and_then_costs_counted_packets(hosts: Hosts, opened: Open) -> None:
    shape = ["root", "tbf", "rate", "10mbit", "burst", "64k", "limit", "20m"]
    hosts[0].run("tc", "qdisc", "add", "dev", "eth0", *shape)
    sender = opened(hosts[0], send_buffer_bytes=1 << 17)
    for _ in range(20):
        sender.broadcast(train_of(44, 1400), 1400)
    assert 0 < sender.send_drops < 20 * 44


def test_cuts_partitions_loss_and_their_end(hosts: Hosts, opened: Open) -> None:
    one, other, third = (opened(host) for host in hosts)
    hosts.cut(hosts[0], hosts[1])
    other.broadcast(b"heard", 5)
    assert packets(gather(one, 5)) == [b"heard"]
    one.broadcast(b"cut", 3)
    assert packets(gather(third, 8)) == [b"heard", b"cut"]
    hosts.partition([hosts[0], hosts[1]], [hosts[2]])
    hosts.lose(100, targets=[hosts[0]])
    third.broadcast(b"lost", 4)
    hosts.heal()
    third.broadcast(b"healed", 6)
    assert packets(gather(other, 6)) == [b"healed"]
    assert packets(gather(one, 6)) == [b"healed"]
    exchange(one, other)


def test_a_network_that_fails_while_the_links_stay_up(hosts: Hosts, opened: Open) -> None:
    one, other = opened(hosts[0]), opened(hosts[1])
    hosts.network_down()
    one.broadcast(b"lost", 4)
    hosts.network_up()
    exchange(one, other)


def test_what_runs_on_a_host_is_gone_with_it() -> None:
    require_namespaces()
    with make_hosts(2) as hosts:
        script = "from ordercast.net.interfaces import interface_of; print(interface_of('10.201.0.1').name); input()"
        process = hosts[0].python(["-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == "eth0\n"
    assert process.returncode is not None
    assert hosts[0].namespace not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


def test_the_interface_of_an_alias(hosts: Hosts) -> None:
    hosts[0].ip("addr", "add", "10.201.9.9/24", "dev", "eth1", "label", "eth1:x")
    with hosts[0].inside():
        assert interface_of("10.201.9.9").name == "eth1"
        assert interface_of("10.201.9.9").mtu == 1500
    hosts[0].ip("link", "set", "lo", "down")
    with hosts[0].inside(), pytest.raises(NetworkError, match=r"the interface lo of 127\.0\.0\.1 is down"):
        UdpNetwork("g", "127.0.0.1")


def test_hosts_with_more_addresses_than_one_question_holds(hosts: Hosts) -> None:
    lines = "".join(f"addr add 10.99.{n // 200}.{n % 200 + 1}/32 dev eth1\n" for n in range(300))
    subprocess.run(["ip", "-n", hosts[0].namespace, "-batch", "-"], input=lines, text=True, check=True)
    with hosts[0].inside():
        assert interface_of("10.99.1.100").name == "eth1"
