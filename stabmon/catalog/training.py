"""The loop itself: loss and its baselines, learning rate, skipped steps, cost."""

from stabmon.catalog.statistic import Statistic

TABLE = (
    Statistic("loss", "model", "nats", "Training loss of the step, as the loop reports it."),
    Statistic("eval_loss", "model", "nats", "Loss of the evaluation that ended just before the step."),
    Statistic("learning_rate", "model", "1", "Learning rate of the first parameter group at the step."),
    Statistic("uniform_loss", "model", "nats", "Baseline: loss of a uniform guess over the vocabulary."),
    Statistic("unigram_loss", "model", "nats", "Baseline: loss of an online unigram predictor on the step's targets."),
    Statistic("bigram_loss", "model", "nats", "Baseline: loss of an online bigram predictor on the step's targets."),
    Statistic(
        "class_mean_loss",
        "model",
        "nats",
        "Baseline: loss of an online classifier that knows each class's frequency and mean input alone.",
    ),
    Statistic("pretrained", "model", "1", "1 once the run is known to start from pretrained weights, else 0.", "max"),
    Statistic("step_seconds", "model", "s", "Wall time since the previous step."),
    Statistic("monitor_seconds", "model", "s", "Host time that stabmon itself took in this step.", "sum"),
    Statistic(
        "skipped_steps",
        "model",
        "1",
        "1 when the optimizer took no step (as where a loss scaler found an overflow), else 0.",
        "max",
    ),
)
