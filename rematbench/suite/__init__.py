"""Every strategy on many models in the minutes that a device is at hand."""
