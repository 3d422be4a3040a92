"""Certificate and key, looked at before the server's thread would fail on them unheard."""

from __future__ import annotations

import ssl
from pathlib import Path


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """ValueError: one without the other, or a pair that cannot be served; it says which, and what to do."""
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        given, missing = ("key", "certificate") if certificate is None else ("certificate", "key")
        raise ValueError(f"{given}={key or certificate} needs {missing}, too: give both PEM files, or none for HTTP")
    try:
        # Without a password it would ask at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = (
            error.reason if isinstance(error, ssl.SSLError) else error.strerror if isinstance(error, OSError) else ""
        )
        raise ValueError(
            f"certificate={certificate}, key={key}: cannot be served ({reason or type(error).__name__}); give a PEM "
            "certificate and its own key, without a password"
        ) from None
