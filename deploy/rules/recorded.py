"""Recording rules: what is worth keeping for years, at a few series a run."""

from __future__ import annotations

RECORDED = {
    "job_run:stabmon_grad_norm:max": "max by (job, run) (stabmon_grad_norm)",
    "job_run_layer:stabmon_grad_norm:max": "max by (job, run, layer) (stabmon_grad_norm)",
    "job_run:stabmon_norm_input_msq:max": "max by (job, run) (stabmon_norm_input_msq)",
    "job_run:stabmon_norm_gain:min": "min by (job, run) (stabmon_norm_gain)",
    "job_run:stabmon_output_change_ratio:max": "max by (job, run) (stabmon_output_change_ratio)",
    "job_run:stabmon_loss:mean": "avg by (job, run) (stabmon_loss)",
    "job_run:stabmon_steps:rate5m": "max by (job, run) (rate(stabmon_steps_total[5m]))",
    "job_run_detector:stabmon_alerts:increase5m": "sum by (job, run, detector) (increase(stabmon_alerts_total[5m]))",
    "job_run:stabmon_monitor_seconds:rate5m": "max by (job, run) (rate(stabmon_monitor_seconds_total[5m]))",
}
