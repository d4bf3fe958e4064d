"""DTR over live tensors: rematerialization decided while the step runs."""
