"""Alert and recording rules of Prometheus, one table per subject; `deploy/build.py` writes them down."""
