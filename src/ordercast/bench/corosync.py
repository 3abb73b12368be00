"""A Corosync daemon on each host: its configuration, and how it is started in a file system of its own.

A daemon needs /run, /dev/shm and /var/lib/corosync for itself, and the names of its addresses: without them it waits
for a name server that is not there. So each host gets a mount namespace, and a process namespace whose first process is
the shell below: when that ends, or whoever started it is killed, the daemon ends too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

KEY_BYTES = 1024
UDP_PORT = 5405
_MULTICAST = "239.77.1.1"

_SCRIPT = """
home=$1; shift
mount --bind "$home/run" /run && mount --bind "$home/lib" /var/lib/corosync && mount -t tmpfs tmpfs /dev/shm &&
mount --bind "$home/hosts" /etc/hosts && mount --bind "$home/resolv.conf" /etc/resolv.conf && mkdir -p /run/corosync ||
exit 1
corosync -f -c "$home/corosync.conf" >"$home/out" 2>&1 </dev/null &
"$@" && exit 0
tail -n 1 "$home/log" "$home/out" >&2
exit 1
"""


def start_script(home: Path, load: Sequence[str]) -> list[str]:
    """The command of one host: the daemon, and the load beside it."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return [*unshare, "sh", "-c", _SCRIPT, "corosync", str(home), *load]


def write_hosts(directory: Path, addresses: Sequence[str], transport: str, mtu: int, encrypt: bool) -> list[Path]:
    """A folder a host with what its daemon reads and writes."""
    key = os.urandom(KEY_BYTES)
    homes = []
    for number in range(1, len(addresses) + 1):
        home = directory / str(number)
        for name in ("run", "lib"):
            (home / name).mkdir(parents=True)
        (home / "key").write_bytes(key)
        (home / "key").chmod(0o400)
        names = [f"{address} n{at}" for at, address in enumerate(addresses, 1)]
        (home / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        (home / "resolv.conf").write_text("")
        (home / "corosync.conf").write_text(configuration(home, addresses, transport, mtu, encrypt))
        homes.append(home)
    return homes


def configuration(home: Path, addresses: Sequence[str], transport: str, mtu: int, encrypt: bool) -> str:
    """corosync.conf: its defaults, but for what a run needs."""
    totem = ["version: 2", "cluster_name: bench", f"transport: {transport}"]
    if encrypt:
        totem += ["crypto_cipher: aes256", "crypto_hash: sha256", f"keyfile: {home}/key"]
    else:
        totem += ["crypto_cipher: none", "crypto_hash: none"]
    if transport == "udp":
        network = addresses[0].rpartition(".")[0] + ".0"
        interface = ["ringnumber: 0", f"bindnetaddr: {network}", f"mcastaddr: {_MULTICAST}", f"mcastport: {UDP_PORT}"]
        totem += [f"netmtu: {mtu}", _section("interface", interface)]
    logging = ["to_stderr: no", "to_logfile: yes", f"logfile: {home}/log", "to_syslog: no"]
    nodes = [
        _section("node", [f"ring0_addr: {address}", f"nodeid: {number}", f"name: n{number}"])
        for number, address in enumerate(addresses, 1)
    ]
    sections = [("totem", totem), ("logging", logging), ("nodelist", nodes)]
    return "\n".join(_section(name, lines) for name, lines in sections) + "\n"


def _section(name: str, lines: Sequence[str]) -> str:
    inner = "\n".join(lines)
    return f"{name} {{\n{inner}\n}}"
