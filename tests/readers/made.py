"""Small files of each format, of the shape in which the tools write them, with numbers of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import nan

STEPS = 40
EVERY = 10


def loss(i: int) -> float:
    """Of the i-th logged step; four decimals, as logs have."""
    return round(9 * 0.95**i + 1, 4)


def norm(i: int) -> float:
    return round(2 + 0.05 * i, 3)


def rate(i: int) -> float:
    return round(1e-3 * (1 - i / 100), 7)


@dataclass(frozen=True)
class Made:
    """A file and what is in it."""

    text: str
    format: str
    first: tuple[int, float]
    last: tuple[int, float]
    count: int
    norm: float = nan
    """Of the first step."""
    rate: float = nan
    evaluation: float = nan
    """The first."""


def holding(text: str, form: str, steps: list[int], **more: float) -> Made:
    count = len(steps)
    return Made(text, form, (steps[0], loss(0)), (steps[-1], loss(count - 1)), count, **more)


TENS = [10 * (i + 1) for i in range(STEPS)]
ONES = list(range(STEPS))


def trainer_state(norms: bool = True) -> Made:
    """With evaluations from the middle on and the summary of the training at its end."""
    rows: list[dict[str, object]] = []
    for i, step in enumerate(TENS):
        row: dict[str, object] = {"epoch": step / 400, "learning_rate": rate(i), "loss": loss(i), "step": step}
        rows.append(row | ({"grad_norm": norm(i)} if norms else {}))
        if step % 200 == 0:
            rows.append({"epoch": step / 400, "eval_loss": 3.25, "eval_runtime": 1.5, "step": step})
    rows.append({"epoch": 1.0, "step": 400, "total_flos": 1e15, "train_loss": 4.5, "train_runtime": 60.0})
    state = {"best_metric": None, "epoch": 1.0, "global_step": 400, "log_history": rows, "max_steps": 400}
    more = {"norm": norm(0)} if norms else {}
    return holding(
        json.dumps(state, indent=2), "Hugging Face trainer_state.json", TENS, rate=rate(0), evaluation=3.25, **more
    )


def trainer_summary() -> Made:
    rows = [{"epoch": 3.0, "step": 78, "total_flos": 1e12, "train_loss": 9.0871, "train_runtime": 60.3}]
    text = json.dumps({"best_metric": None, "global_step": 78, "log_history": rows})
    return Made(text, "Hugging Face trainer_state.json", (78, 9.0871), (78, 9.0871), 1)


def preference() -> Made:
    """TRL's DPO: many numbers beside the loss."""
    rows = []
    for i, step in enumerate(TENS):
        more = {"logits/chosen": -2.6, "logps/chosen": -134.9, "rewards/margins": 0.1 * i}
        rows.append({"epoch": 0.1, "learning_rate": rate(i), **more, "loss": loss(i), "step": step})
        rows.append({"eval_logits/chosen": -2.5, "eval_loss": 0.51, "eval_rewards/margins": 1.0, "step": step})
    text = json.dumps({"log_history": rows[:-1]})
    return holding(text, "Hugging Face trainer_state.json", TENS, rate=rate(0), evaluation=0.51)


def lightning() -> Made:
    lines = ["epoch,epoch_time,step,train_loss_epoch,train_loss_step,train_perplexity_step,val_loss"]
    for i, step in enumerate(TENS):
        lines.append(f"{i // 20},,{step - 1},,{loss(i)},12.5,")
        if step % 200 == 0:
            lines.append(f"{i // 20},,{step - 1},,,,3.25")
            lines.append(f"{i // 20},93.5,{step - 1},4.75,,,")
    return holding("\n".join(lines) + "\n", "Lightning metrics.csv", [t - 1 for t in TENS], evaluation=3.25)


def wandb_export() -> Made:
    names = ["second run - train/loss", "first run - train/loss"]
    header = ["Step", *(f"{name}{tail}" for name in names for tail in ("", "__MIN", "__MAX"))]
    rows = [[str(i), *[str(loss(i))] * 3, *[str(2 * loss(i)) if i < 20 else ""] * 3] for i in ONES]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])
    return holding(text, "Weights & Biases CSV export", ONES)


def algoperf() -> Made:
    lines = ["global_step,grad_norm,loss,train/loss,validation/loss,score,accumulated_submission_time,preemption_count"]
    for i in ONES:
        lines.append(f"{100 * i},{norm(i)},{loss(i)},,,,,")
        lines += [f"{100 * i + 1},,,11.06,3.25,27.3,27.3,0.0"] if i % EVERY == 0 else []
    lines.append("3999,,,,,46539.6,,0.0")
    return holding(
        "\n".join(lines), "AlgoPerf measurements.csv", [100 * i for i in ONES], norm=norm(0), evaluation=3.25
    )


def nanogpt() -> Made:
    lines = ["number of parameters: 0.80M", "compiling the model... (takes a ~minute)"]
    for i in ONES:
        lines += [f"step {i}: train loss 4.5000, val loss 3.2500", "saving checkpoint to out"] if i % EVERY == 0 else []
        lines.append(f"iter {i}: loss {loss(i):.4f}, time 306.32ms, mfu 108.40%")
    lines.append("[rank0]: Traceback (most recent call last):")
    return holding("\n".join(lines), "nanoGPT log", ONES, evaluation=3.25)


def modded_nanogpt() -> Made:
    source = ["=" * 100, "import os", 'print(f"step:{step}/{steps} train_loss:{loss:.4f}")'] + ["x = 1"] * 900
    lines = [*source, "=" * 100, "step:0/40 val_loss:3.2500 train_time:305ms step_avg:nanms"]
    for i in ONES:
        lines.append(f"step:{i + 1}/40 train_loss:{loss(i):.4f} train_time:24179ms step_avg:nanms")
    return holding("\n".join(lines), "modded-nanogpt log", [i + 1 for i in ONES], evaluation=3.25)


def llmc() -> Made:
    lines = ["s:0 tel:3.250000"] + [f"s:{i} trl:{loss(i):.6f} lr:{rate(i)} norm:{norm(i)}" for i in ONES]
    return holding("\n".join(lines), "llm.c log", ONES, norm=norm(0), rate=rate(0), evaluation=3.25)


def llmc_printed() -> Made:
    lines = ["| weight init method | d12 |", "val loss 3.250000"]
    for i in ONES:
        lines.append(
            f"step {i + 1:4d}/40 | loss {loss(i):.6f} (+nanz)| norm {norm(i):.4f} (+nanz)| lr {rate(i):.2e} "
            "| 2517.44 ms | 39.9% bf16 MFU | 208262 tok/s"
        )
    return holding("\n".join(lines), "llm.c log", [i + 1 for i in ONES], norm=norm(0), rate=1e-3, evaluation=3.25)


def megatron() -> Made:
    """The loss scaler skips the whole first interval, which then has no loss."""
    lines = ["using world size: 4"] * 200
    lines.append(_iteration(10, "", 10))
    for i, step in enumerate(TENS):
        lines.append(_iteration(step + 10, f" lm loss: {loss(i):.6E} | grad norm: {norm(i)} |", 0))
    lines.append(" validation loss at iteration 30 | lm loss value: 3.250000E+00 | lm loss PPL: 2.579034E+01 | ")
    lines.append(_iteration(420, f" lm loss: {loss(40):.6E} | grad norm: nan |", 1))
    more = {"norm": norm(0), "rate": 1e-4, "evaluation": 3.25}
    return Made("\n".join(lines), "Megatron-LM log", (20, loss(0)), (420, loss(40)), 41, **more)


def _iteration(step: int, loss: str, skipped: int) -> str:
    return (
        f" iteration {step:8d}/    1000 | consumed samples: {4 * step} | elapsed time per iteration (ms): 1354.9 "
        f"| learning rate: 1.000E-04 | global batch size:     4 |{loss} loss scale: 8388608.0 "
        f"| number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
    )


def torchtitan() -> Made:
    lines = ["[titan] 2025-01-01 00:00:00,123 - root - INFO - Building 0-th model part"]
    for i, step in enumerate(TENS):
        lines.append(
            f"[rank0]:[titan] 2025-01-01 00:00:01,123 - root \x1b[31mstep: {step:,}  \x1b[32mloss: {loss(i):7.4f}  "
            f"\x1b[35mgrad_norm: {norm(i):7.4f}  \x1b[34mmemory:  1.20GiB(1.5%)\x1b[0m"
        )
        lines += ["[rank0]:[titan] - root - INFO - validate step: 20  loss: 3.25  memory: 1"] if step == 20 else []
    return holding("\n".join(lines), "torchtitan log", TENS, norm=norm(0), evaluation=3.25)


def olmo() -> Made:
    lines = []
    for i in ONES:
        lines += [
            f"[2024-04-17 09:42:26] INFO     [olmo.train:816, rank=0] [step={1000 + i:,}/739,328,epoch=0]",
            f"    optim/total_grad_norm={norm(i)}",
            f"    train/CrossEntropyLoss={loss(i)}",
            "    train/Perplexity=76,631",
            f"    optim/learning_rate_group0={rate(i)}",
            "    System/Peak GPU Memory (MB)=42,133",
        ]
        lines += ["    eval/c4_en/CrossEntropyLoss=3.25"] if i % EVERY == 5 else []
    return holding("\n".join(lines), "OLMo log", [1000 + i for i in ONES], norm=norm(0), rate=rate(0), evaluation=3.25)


def llamafactory() -> Made:
    rows: list[dict[str, object]] = []
    for i, step in enumerate(TENS):
        row = {"current_steps": step, "total_steps": 401, "loss": loss(i), "lr": rate(i), "epoch": step / 401}
        rows.append({**row, "percentage": 0.2, "elapsed_time": "0:32:48", "remaining_time": "9 days, 21:39:23"})
    rows.append({"current_steps": 401, "total_steps": 401, "epoch": 1.0, "percentage": 100.0, "elapsed_time": "9:12"})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return holding(text, "LLaMA-Factory trainer_log.jsonl", TENS, rate=rate(0))


def json_lines() -> Made:
    rows: list[dict[str, object]] = []
    for i, step in enumerate(TENS):
        rows.append({"step": step, "wallclock": 3.5 * i, "train_loss": loss(i), "lr": rate(i), "step_time_ms": 307.5})
        rows += [{"step": step, "wallclock": 3.5 * i + 1, "val_loss": 3.25}] if i % EVERY == 0 else []
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return holding(text, "JSON lines", TENS, rate=rate(0), evaluation=3.25)


def json_array() -> Made:
    rows = [{"step": step, "loss": loss(i), "grad_norm": norm(i)} for i, step in enumerate(TENS)]
    return holding(json.dumps(rows), "JSON array", TENS, norm=norm(0))


def table() -> Made:
    lines = ["Iteration;Train Loss;LR;Grad Norm;Valid Loss"]
    lines += [f"{i};{loss(i)};{rate(i)};{norm(i)};{3.25 if i % EVERY == 0 else ''}" for i in ONES]
    return holding("\n".join(lines), "CSV", ONES, norm=norm(0), rate=rate(0), evaluation=3.25)


def mlflow_metric() -> Made:
    text = "".join(f"{1700000000000 + 500 * i} {loss(i)} {i}\n" for i in ONES)
    return holding(text, "MLflow metric", ONES)


def trainer_console() -> Made:
    lines = ["  0%|          | 0/400 [00:00<?, ?it/s]"]
    for i, step in enumerate(TENS):
        row = f"{{'loss': {loss(i)}, 'grad_norm': '{norm(i)}', 'learning_rate': {rate(i)}, 'epoch': {step / 400}}}"
        lines.append(f"\r  3%|▎         | {step}/400 [00:01<00:40,  9.57it/s]\r{row}")
    lines.append("\r 50%|█████     | 4/8 [00:00<00:00, 30.1it/s]\r{'eval_loss': 3.25}")
    lines.append("{'train_runtime': 60.1, 'train_loss': 4.5, 'epoch': 1.0}")
    return holding("\n".join(lines), "Hugging Face trainer log", TENS, norm=norm(0), rate=rate(0), evaluation=3.25)


def any_log() -> Made:
    lines = ["Namespace(batch_size=20, lr=20)"]
    for i in ONES:
        lines.append(
            f"2025-03-01 10:00:00 | INFO | Step: {i} | train_loss={loss(i)} | lr={rate(i)} | grad_norm: {norm(i)}"
        )
        lines += ["2025-03-01 10:00:00 | INFO | Validation loss: 3.25"] if i % EVERY == 0 else []
    return holding("\n".join(lines), "log", ONES, norm=norm(0), rate=rate(0), evaluation=3.25)
