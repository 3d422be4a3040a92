"""The token that is given, and what it means that none is."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from stabmon.settings import Settings


def token_in(settings: Settings) -> str | None:
    """The one that is given; None where none is. ValueError: two, or a file that has none; no text shows it."""
    return token_of(settings.token.get_secret_value() if settings.token else None, settings.token_file)


def token_of(token: str | None, file: Path | None) -> str | None:
    """As `token_in`."""
    if file is None:
        return token
    if token is not None:
        raise ValueError(f"token_file={file}: there is a token, too; give one of the two")
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"token_file={file}: cannot be read ({type(error).__name__}); give a file with the token"
        ) from None
    if not found:
        raise ValueError(f"token_file={file}: is empty; write 8 or more letters, digits and -._~ into it")
    return found


def beyond_this_machine(host: str) -> bool:
    """Whether a server that listens there can be reached from elsewhere."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host.lower() != "localhost"
