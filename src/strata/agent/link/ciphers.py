"""Which cipher the node asks for: one that is fast on its own processor.

Without AES instructions (emulated machines have none) ChaCha20 is nine times as fast, and an image's transfer is mostly
deciphering. Python cannot choose TLS 1.3 ciphers, so OpenSSL's own configuration does, before the library is loaded.
"""

from __future__ import annotations

import os

from ..files import write_private
from ..paths import Paths

_CHACHA_FIRST = b"""openssl_conf = agent
[agent]
ssl_conf = tls
[tls]
system_default = order
[order]
Ciphersuites = TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256
"""


def prefer_fast_cipher(paths: Paths) -> None:
    """Choose before anything imports `ssl`."""
    with paths.proc("cpuinfo").open() as lines:
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    if "aes" not in flags.split():
        write_private(paths.run / "openssl.cnf", _CHACHA_FIRST)
        os.environ["OPENSSL_CONF"] = str(paths.run / "openssl.cnf")
