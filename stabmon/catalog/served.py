"""What is served of some statistics beside their value last read."""

PEAKS = ("loss", "total_grad_norm", "grad_norm", "output_change_ratio", "update_ratio")
"""Those whose maximum over the last minute is served, too: a spike of one step passes between two scrapes."""

SOURCES = {
    "loss": ("loss",),
    "activation": ("norm_input_msq", "norm_input_var", "final_norm_input_msq"),
    "gradient": ("total_grad_sq", "grad_sq"),
    "update": ("update_sq", "weight_sq"),
}
"""Where a step is not finite -> the stored statistics that tell; steps are counted by it."""
SKIPPED = "skipped_steps"
"""1 where a loss scaler skipped the step, which it does because something was not finite: those are not counted."""
DURATION, COST = "step_seconds", "monitor_seconds"
"""The statistics that a histogram and a counter are made of."""
