"""Real proxies and a real resolver for tests: Debian's microsocks, dante, tinyproxy, squid and unbound, on loopback.

A part that this machine lacks skips the test by name, as in `reachline.testing.parts`. Proxies carry to any address and port.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from reachline.testing.parts import Running, free_port, require, served

__all__ = ["dante", "microsocks", "squid", "tinyproxy", "unbound"]


@contextlib.contextmanager
def microsocks(directory: Path, *, user: str = "", password: str = "") -> Iterator[Running]:
    """A SOCKS5 proxy that resolves names itself; with `user` it lets in nobody else."""
    program, port = require("microsocks"), free_port()
    secret = ("-u", user, "-P", password) if user else ()
    command = (program, "-i", "127.0.0.1", "-p", str(port), *secret)
    with served(command, port=port, log=directory / "microsocks.log") as running:
        yield running


_DANTE: Final = """
internal: 127.0.0.1 port = {port}
external: lo
socksmethod: none
clientmethod: none
user.privileged: {user}
user.unprivileged: {user}
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""


@contextlib.contextmanager
def dante(directory: Path) -> Iterator[Running]:
    """A SOCKS5 proxy without passwords; what it carries leaves by loopback."""
    program, port = require("danted"), free_port()
    file = directory / "danted.conf"
    file.write_text(_DANTE.format(port=port, user=_me()))
    command = (program, "-f", str(file), "-p", str(directory / "danted.pid"))
    with served(command, port=port, log=directory / "danted.log") as running:
        yield running


@contextlib.contextmanager
def tinyproxy(directory: Path, *, user: str = "", password: str = "") -> Iterator[Running]:
    """An HTTP proxy with CONNECT; with `user` it answers 407 to whoever does not say that (Basic)."""
    program, port = require("tinyproxy"), free_port()
    lines = [f"Port {port}", "Listen 127.0.0.1", "MaxClients 100", "Timeout 60", "DisableViaHeader Yes"]
    lines += [f"BasicAuth {user} {password}"] if user else []
    file = directory / "tinyproxy.conf"
    file.write_text("\n".join(lines) + "\n")
    with served((program, "-d", "-c", str(file)), port=port, log=directory / "tinyproxy.log") as running:
        yield running


_SQUID: Final = """
{listen}
http_access allow all
cache deny all
cache_mem 1 MB
memory_pools off
access_log none
cache_log stdio:/dev/stderr
cache_store_log none
netdb_filename none
pinger_enable off
pid_filename none
coredump_dir none
cache_effective_user {user}
shutdown_lifetime 0 seconds
dns_nameservers 127.0.0.1
"""


@contextlib.contextmanager
def squid(directory: Path, *, certificate: tuple[Path, Path] | None = None) -> Iterator[Running]:
    """An HTTP proxy with CONNECT to any port, that caches nothing and asks nobody for a password.

    `certificate` is (chain, key): then it is spoken to in TLS, which Debian's squid has by GnuTLS.
    As root it becomes Debian's user `proxy`: it refuses to be anything better.
    """
    program, port = require("squid"), free_port()
    file = directory / "squid.conf"
    listen = f"http_port 127.0.0.1:{port}"
    if certificate:
        chain, key = certificate
        listen = f"https_port 127.0.0.1:{port} tls-cert={chain} tls-key={key}"
    file.write_text(_SQUID.format(listen=listen, user="proxy" if os.geteuid() == 0 else _me()))
    # Its shared memory is named after the service: two squids of one name cannot live beside each other.
    service = f"rl{os.getpid()}x{port}"
    command = (program, "-N", "-n", service, "-f", str(file))
    with served(command, port=port, log=directory / "squid.log") as running:
        try:
            yield running
        finally:
            running.process.kill()  # asked to end it takes two seconds, and it has nothing to keep but that memory
            running.process.wait()
            for left in Path("/dev/shm").glob(f"{service}-*"):  # noqa: S108 (where shm_open keeps it)
                left.unlink(missing_ok=True)


_UNBOUND: Final = """
server:
  interface: 127.0.0.1@{port}
  access-control: 127.0.0.0/8 allow
  username: ""
  chroot: ""
  directory: "{directory}"
  pidfile: ""
  use-syslog: no
  do-ip6: no
  do-not-query-localhost: no
  module-config: "iterator"
  local-zone: "." static
{records}
remote-control:
  control-enable: no
"""


@contextlib.contextmanager
def unbound(directory: Path, *, records: Mapping[str, str]) -> Iterator[Running]:
    """A resolver that answers `records` (name to IPv4 or IPv6 address), and NXDOMAIN to all else."""
    program, port = require("unbound"), free_port()
    lines = (
        f'  local-data: "{name} 60 IN {"AAAA" if ":" in address else "A"} {address}"'
        for name, address in records.items()
    )
    file = directory / "unbound.conf"
    file.write_text(_UNBOUND.format(port=port, directory=directory, records="\n".join(lines)))
    with served((program, "-d", "-c", str(file)), port=port, log=directory / "unbound.log") as running:
        yield running


def _me() -> str:
    """Our own name: an ordinary user may become nobody else."""
    return pwd.getpwuid(os.geteuid()).pw_name
