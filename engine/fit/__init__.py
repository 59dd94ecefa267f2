"""What a model needs, device by device, before and instead of loading it."""
