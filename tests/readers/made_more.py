"""More small files: of formats that `made` has no room for."""

from __future__ import annotations

import json

from tests.readers.made import EVERY, ONES, TENS, Made, holding, loss, norm, rate


def litgpt() -> Made:
    lines = ["Seed set to 1337"]
    for i in ONES:
        lines.append(
            f"Epoch 1 | iter {i + 1} step {i // 2} | loss train: {loss(i)}, val: n/a | iter time: 112.2 ms (step)"
        )
        lines += [f"iter {i + 1}: val loss 3.2500, val time: 3778.02 ms"] if i % EVERY == 0 else []
    return holding("\n".join(lines), "LitGPT log", [i + 1 for i in ONES], evaluation=3.25)


def nanotron() -> Made:
    lines = [
        f"01/17/2025 14:02:16 [INFO|DP=0|PP=0|TP=0|node]: iteration: {step} / 1000 | consumed_tokens: 634K | "
        f"tokens_per_sec: 2.35K | lm_loss: {loss(i)} | lr: {rate(i)} | model_tflops_per_gpu: 0.7 | grad_norm: {norm(i)}"
        for i, step in enumerate(TENS)
    ]
    return holding("\n".join(lines), "nanotron log", TENS, norm=norm(0), rate=rate(0))


def composer() -> Made:
    lines = ["*" * 30]
    for i, step in enumerate(TENS):
        lines += [f"[batch={step}/400]:", f"\t Train time/batch: {step - 1}", f"\t Train loss/train/total: {loss(i)}"]
        lines += [f"\t Train lr-DecoupledAdamW/group0: {rate(i)}", "\t Train metrics/train/LanguagePerplexity: 7.5"]
        lines += ["\t Eval metrics/eval/LanguageCrossEntropy: 3.2500"] if i % EVERY == 0 else []
    return holding("\n".join(lines), "Composer log", TENS, rate=rate(0), evaluation=3.25)


def keras_history() -> Made:
    lists = {"accuracy": [0.5] * 40, "loss": [loss(i) for i in ONES], "val_loss": [3.25] * 40}
    return holding(json.dumps(lists), "Keras history", [i + 1 for i in ONES], evaluation=3.25)


def json_object() -> Made:
    rows = [{"step": step, "loss": loss(i), "grad_norm": norm(i)} for i, step in enumerate(TENS)]
    evaluations = [{"step": step, "val_loss": 3.25} for step in TENS]
    document = {"config": {"layers": [{"width": 64}]}, "final_loss": 1.5, "val": evaluations, "metrics": rows}
    return holding(json.dumps(document), "JSON object", TENS, norm=norm(0))


def json_by_step() -> Made:
    rows = {str(step): {"train": {"loss": loss(i), "lr": rate(i)}} for i, step in enumerate(TENS)}
    return holding(json.dumps(rows, indent=1), "JSON object", TENS, rate=rate(0))


def keras_console() -> Made:
    """Version 3, as a terminal gets it; an epoch of 25 steps."""
    lines = []
    for i in ONES:
        lines.append(f"Epoch {i + 1}/40\n")
        for done in (1, 20, 25):
            bar = f"\x1b[1m{done:2d}/25\x1b[0m \x1b[32m{'━' * done}\x1b[0m\x1b[37m{'━' * (25 - done)}\x1b[0m"
            lines.append("\b" * 70 + f"\r{bar} 0s 3ms/step - accuracy: 0.1000 - loss: {30 - done:.4f}")
        lines.append(
            f"\b\r{bar} 1s 3ms/step - accuracy: 0.1 - loss: {loss(i)} - val_loss: 3.25 - learning_rate: {rate(i)}\n"
        )
    return holding("".join(lines), "Keras log", [25 * (i + 1) for i in ONES], rate=rate(0), evaluation=3.25)


def spaced() -> Made:
    lines = ["# trained on one machine", "#", " step    train_loss   lr"]
    lines += [f"{i:5d}  {loss(i):10.4f} {rate(i)}" for i in ONES]
    return holding("\n".join(lines), "CSV", ONES, rate=rate(0))


def tensorboard_csv() -> Made:
    lines = ["Wall time,Step,Value", *(f"{1700000000.25 + i},{step},{loss(i)}" for i, step in enumerate(TENS))]
    return holding("\n".join(lines), "TensorBoard CSV of a scalar", TENS)


def json_lists() -> Made:
    lists = {"loss": [loss(i) for i in ONES], "val_loss": [3.25] * 40}
    document = {"params": {"epochs": 40}, "history": lists, "steps": TENS}
    return holding(json.dumps(document), "JSON lists", TENS, evaluation=3.25)


def nemo() -> Made:
    lines = [
        f"Training epoch {i // 20}, iteration {i % 20}/19 | lr: {rate(i)} | global_batch_size: 1 | "
        f"global_step: {i} | reduced_train_loss: {loss(i)} | train_step_timing in s: 0.03 | val_loss: 4.106"
        for i in ONES
    ]
    return holding("\n".join(lines), "NeMo log", ONES, rate=rate(0))


def espnet() -> Made:
    lines = [
        f"[host] 2022-01-01 10:00:00,123 (trainer:737) INFO: {1 + i // 20}epoch:train:{10 * (i % 20) + 1}-"
        f"{10 * (i % 20) + 10}batch: iter_time=1e-4, loss_ctc=99.1, loss={loss(i)}, backward_time=0.1, optim0_lr0=1e-5"
        for i in ONES
    ]
    return holding("\n".join(lines), "ESPnet log", TENS)


def spacy() -> Made:
    lines = [
        "=" * 29 + " Training pipeline " + "=" * 29,
        "ℹ Pipeline: ['tok2vec', 'ner']",
        "ℹ Initial learn rate: 0.001",
    ]
    lines += [
        "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE ",
        "---  ------  ------------  --------  ----",
    ]
    lines += [f"{i // 20:3d}  {10 * i:6d}  {0.5:12.2f}  {loss(i):8.4f}  {0.0:6.2f}  0.00    0.00    0.00" for i in ONES]
    return holding("\n".join([*lines, "✔ Saved pipeline to output directory"]), "spaCy log", [10 * i for i in ONES])
