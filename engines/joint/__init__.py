"""Computes and implementations chosen together: search and bounds."""
