"""Operator-event streams: what a program did, call by call, as simrd logs it."""
