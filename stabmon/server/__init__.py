"""HTTP: the FastAPI application and the thread that serves it beside a training."""
