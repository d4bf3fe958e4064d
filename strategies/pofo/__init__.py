"""Offloading and rematerialization of chains (Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021)."""
