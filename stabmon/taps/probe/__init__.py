"""The model run outside its training: on a fixed call, without a trace, exactly or by estimate."""
