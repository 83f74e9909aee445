"""The loop, and what it is made of: options, optimizers, metrics, records, callbacks, memory."""
