"""A target for `notify=` that reaches about a hundred services (ntfy, Discord, PagerDuty, mail) through Apprise."""

from __future__ import annotations

from stabmon.records import Alert


class Apprise:
    """`url`: an Apprise URL, which holds the secret, such as `ntfy://topic`; see its documentation for each service.

    ImportError: Apprise is not installed. ValueError: it does not know such a URL; the text does not show it.
    """

    def __init__(self, url: str) -> None:
        try:
            import apprise
        except ImportError:
            raise ImportError("Apprise needs the package apprise: pip install 'stabmon[notify]'") from None
        self._kinds = {
            "info": apprise.NotifyType.INFO,
            "warning": apprise.NotifyType.WARNING,
            "critical": apprise.NotifyType.FAILURE,
        }
        self._resolved = apprise.NotifyType.SUCCESS
        self._services = apprise.Apprise()
        scheme = url.partition("://")[0]
        self.name = f"apprise_{scheme}" if scheme.isalnum() else "apprise"
        if not self._services.add(url):
            raise ValueError(
                f"Apprise: does not know this {scheme}:// URL; https://appriseit.com/services/ lists what it takes"
                if self.name != "apprise"
                else "Apprise: the URL must begin with a service such as ntfy:// or discord://"
            )

    def send(self, alert: Alert) -> None:
        """RuntimeError: the service did not take it."""
        kind = self._resolved if alert.state == "cleared" else self._kinds[alert.severity]
        title, _, body = alert.message.partition("\n")
        if not self._services.notify(title=title, body=body, notify_type=kind):
            raise RuntimeError(f"{self.name}: the service did not take the alert")
