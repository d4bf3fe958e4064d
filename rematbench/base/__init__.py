"""The ground floor: errors, kernels, hashes, imports by path, places, the clock. No graphs."""
