"""stabmon in a web server of your own: its page, JSON and metrics below /stabmon; 50 steps, under 20 s.

python examples/web_server.py
"""

import socket
from threading import Thread
from urllib.request import urlopen

import torch
import uvicorn
from fastapi import FastAPI
from torch import nn

from stabmon import Monitor

STEPS, TOKEN = 50, "open-sesame"  # who has the token sees the page


def served(app: FastAPI) -> str:
    """Serves it from a thread for as long as this process lives, and tells the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    Thread(target=server.run, args=([listener],), daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def main() -> None:
    torch.manual_seed(0)
    app = FastAPI()

    @app.get("/")
    def mine() -> str:
        return "yours"

    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Monitor(model, optimizer, run="web-server", serve=False, token=TOKEN) as monitor:
        app.mount("/stabmon", monitor.app())
        address = served(app)
        print(f"page: {address}/stabmon/?token={TOKEN}")
        for _ in range(STEPS):
            inputs = torch.randn(64, 8)
            loss = (model(inputs).squeeze(-1) - inputs.sum(1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)
        with urlopen(f"{address}/stabmon/metrics") as answer:
            lines = answer.read().decode().splitlines()
        print(*(line for line in lines if line.startswith(("stabmon_step{", "stabmon_loss{"))), sep="\n")
    print(f"alerts: {len(monitor.alerts)}; recorded in {monitor.run_log}")


if __name__ == "__main__":
    main()
